"""Journal follower: reads journals to their end across broken connections, each line once."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from jupyter_mntrain.cluster.discovery.discovery import StaticDiscovery
from jupyter_mntrain.cluster.history import follower as journal_module
from jupyter_mntrain.cluster.history.follower import JournalFollower
from jupyter_mntrain.cluster.launch.launcher import AgentLauncher
from jupyter_mntrain.cluster.view.cluster_view import ClusterView
from jupyter_mntrain.metrics.history import JobHistory
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.job import JobSpec, Participant
from jupyter_mntrain.model.records.metrics import LinkSample
from tests.standin.agent import FakeAgent
from tests.standin.faults import Hang, LoseReply, LoseRequest
from tests.waiting import coming

pytestmark = pytest.mark.anyio
MakeAgent = Callable[..., Awaitable[FakeAgent]]
JOB = JobId("j-0000cafe")


class Running:
    """A job of two ranks on two nodes, and a follower of it."""

    def __init__(self, agents: list[FakeAgent], live: ClusterView) -> None:
        self.one, self.two = agents
        self.live = live
        self.changes = 0
        self.follower = self.another()

    def another(self) -> JournalFollower:
        return JournalFollower(
            JOB, view=lambda: self.live.jobs[JOB], client=self.live.client_of, on_change=self._count
        )

    def _count(self) -> None:
        self.changes += 1

    def steps(self) -> dict[int, list[int]]:
        return {
            rank: [step.step for step in series.steps]
            for rank, series in self.follower.snapshot().ranks.items()
        }

    def finish(self) -> None:
        for agent in (self.one, self.two):
            agent.finish(JOB)

    async def completed(self) -> JobHistory:
        await coming(lambda: self.follower.snapshot().is_complete)
        return self.follower.snapshot()


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "FIRST_RETRY_S", 0.01)
    monkeypatch.setattr(journal_module, "LAST_RETRY_S", 0.05)


@pytest.fixture
async def running(anyio_backend: str, agent_here: MakeAgent) -> AsyncIterator[Running]:
    agents = [await agent_here(name, heartbeat_every_s=0.3) for name in ("node1", "node2")]
    live = ClusterView("default", discovery=StaticDiscovery(), clock=time)
    await live.start([(agent.where, "typed") for agent in agents])
    await coming(lambda: [view.liveness for view in live.nodes] == ["up", "up"])
    participants = (Participant(node="node1"), Participant(node="node2"))
    spec = JobSpec(entry=("-m", "trainer"), participants=participants)
    await AgentLauncher(live, clock=time).launch(spec, JOB)
    made = Running(agents, live)
    yield made
    await made.follower.close()
    await live.close()


async def test_lines_come_as_they_are_written(running: Running) -> None:
    running.one.steps(JOB, 0, [1])
    running.follower.follow()
    await coming(lambda: running.steps() == {0: [1]})
    running.two.steps(JOB, 1, [1, 2])
    running.one.write(
        JOB,
        LinkSample(time_s=1.0, interface="lo", interval_s=1.0, sent_bytes=1, received_bytes=1),
    )
    await coming(lambda: running.steps() == {0: [1], 1: [1, 2]})
    await coming(lambda: list(running.follower.snapshot().links) == ["node1"])
    assert running.changes > 0
    assert not running.follower.snapshot().is_complete


async def test_it_hears_how_far_the_jobs_clock_is_from_its_own(running: Running) -> None:
    running.follower.follow()
    begun_s = time.monotonic()

    def write() -> bool:
        """As an agent does, of a job whose clock is an hour behind."""
        sample = LinkSample(
            time_s=time.time() - 3600.0,
            interface="lo",
            interval_s=0.05,
            sent_bytes=1,
            received_bytes=1,
        )
        running.one.write(JOB, sample)
        return running.follower.snapshot().clock_ahead_s < 0.0

    await coming(write)
    ahead_s = running.follower.snapshot().clock_ahead_s
    assert ahead_s == pytest.approx(-3600.0, abs=1.0 + time.monotonic() - begun_s)


async def test_it_is_complete_when_every_part_has_ended_and_every_line_is_read(
    running: Running,
) -> None:
    running.follower.follow()
    running.one.steps(JOB, 0, [1, 2])
    running.one.finish(JOB)
    await coming(lambda: running.live.jobs[JOB].parts[0].state == "succeeded")
    assert not running.follower.snapshot().is_complete, "node2 still runs"
    running.two.steps(JOB, 1, [1, 2])
    running.two.finish(JOB)
    history = await running.completed()
    assert history.view.state == "succeeded"
    assert running.steps() == {0: [1, 2], 1: [1, 2]}


@pytest.mark.parametrize("fault", [LoseReply(), LoseRequest()])
async def test_a_connection_that_breaks_after_every_line_costs_no_line_and_doubles_none(
    running: Running, no_alerts: None, fault: Any
) -> None:
    """``LoseReply`` delivers one line per connection and then breaks off."""
    running.one.faults["journal"] += [fault] * 10
    running.one.steps(JOB, 0, range(1, 31))
    running.follower.follow()
    await coming(lambda: running.steps().get(0) == list(range(1, 31)))
    running.finish()
    await running.completed()
    assert running.steps()[0] == list(range(1, 31))
    assert running.one.count("journal") > 10


async def test_an_agent_that_restarts_is_read_on_from_where_it_was_left(running: Running) -> None:
    running.follower.follow()
    running.one.steps(JOB, 0, [1, 2])
    await coming(lambda: running.steps() == {0: [1, 2]})
    await running.one.die()
    running.one.steps(JOB, 0, [3])
    await running.one.start()
    await coming(lambda: running.steps() == {0: [1, 2, 3]})


async def test_one_silent_agent_does_not_hold_up_the_other(running: Running) -> None:
    running.one.faults["journal"].append(Hang())
    running.follower.follow()
    running.two.steps(JOB, 1, [1])
    await coming(lambda: running.steps() == {1: [1]})


async def test_a_second_reader_gets_the_whole_history_of_a_finished_job(running: Running) -> None:
    running.one.steps(JOB, 0, [1, 2, 3])
    running.two.steps(JOB, 1, [1, 2, 3])
    running.finish()
    await coming(lambda: running.live.jobs[JOB].state == "succeeded")
    late = running.another()
    late.follow()
    await coming(lambda: late.snapshot().is_complete)
    assert {rank: len(one.steps) for rank, one in late.snapshot().ranks.items()} == {0: 3, 1: 3}
    late.follow()
    await late.close()


async def test_following_twice_reads_once(running: Running) -> None:
    running.follower.follow()
    running.follower.follow()
    running.one.steps(JOB, 0, [1])
    await coming(lambda: running.steps() == {0: [1]})
    assert running.one.count("journal") == 1


async def test_a_job_that_a_node_has_deleted_is_read_as_far_as_there_is(running: Running) -> None:
    running.two.steps(JOB, 1, [1])
    running.finish()
    await coming(lambda: running.live.jobs[JOB].state == "succeeded")
    running.one.journals.clear()
    running.follower.follow()
    await running.completed()
    assert running.steps() == {1: [1]}
