"""Launcher: all or nothing, even if requests are refused, lost or slow, or a node dies."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from jupyter_mntrain.cluster.agents import transport as transport_module
from jupyter_mntrain.cluster.discovery.discovery import StaticDiscovery
from jupyter_mntrain.cluster.launch.launcher import AgentLauncher
from jupyter_mntrain.cluster.view.cluster_view import ClusterView
from jupyter_mntrain.launch import gang_start
from jupyter_mntrain.model.errors import NodeError, RefusedError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.job import JobSpec, JobView, Participant
from tests.standin.agent import FakeAgent
from tests.standin.faults import Hang, Held, LoseReply, LoseRequest, Refuse, Slow
from tests.standin.heard import Heard
from tests.waiting import coming
from tests.wording import says, wording

pytestmark = pytest.mark.anyio
MakeAgent = Callable[..., Awaitable[FakeAgent]]
JOB = JobId("j-0000beef")


class Lab:
    """Three agents of one machine on loopback, a live view of them, and a launcher."""

    def __init__(self, agents: list[FakeAgent]) -> None:
        self.agents = agents
        self.live = ClusterView("default", discovery=StaticDiscovery(), clock=time)
        self.launcher = AgentLauncher(
            self.live, clock=time, submitted_by="test", pauses_s=(0.01, 0.02, 0.03)
        )

    async def begin(self) -> None:
        await self.live.start([(agent.where, "typed") for agent in self.agents])
        await coming(lambda: [view.liveness for view in self.live.nodes] == ["up"] * 3)
        for agent in self.agents:
            agent.requests.clear()  # who it is

    def spec(self, *nodes: str, **fields: Any) -> JobSpec:
        names = nodes or ("node1", "node2", "node3")
        basis: dict[str, Any] = {
            "entry": ("-m", "trainer"),
            "participants": tuple(Participant(node=name) for name in names),
        }
        return JobSpec(**(basis | fields))

    def assert_nothing_is_left(self) -> None:
        for agent in self.agents:
            assert agent.leases == {}, f"{agent.name} still has a lease"
            for job in agent.jobs.values():
                assert job.part.state == "canceled", f"{agent.name} still runs"


@pytest.fixture
async def lab(
    anyio_backend: str,
    agent_here: MakeAgent,
    no_alerts: None,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Lab]:
    # On a busy machine leasing takes long, and leases that are renewed are asked for once more.
    monkeypatch.setattr(gang_start, "RENEW_AFTER_S", 60.0)
    made = Lab([await agent_here(f"node{n}", heartbeat_every_s=0.3) for n in (1, 2, 3)])
    await made.begin()
    yield made
    await made.live.close()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gang_start, "ROLLBACK_POLL_S", 0.01)


async def test_all_are_leased_then_all_are_started(lab: Lab) -> None:
    begun: list[tuple[JobView, list[list[int]]]] = []

    def begin(view: JobView) -> None:
        asked = [[agent.count(word) for agent in lab.agents] for word in ("lease", "start")]
        begun.append((view, asked))

    lab.launcher.on_begin = begin
    view = await lab.launcher.launch(lab.spec(), JOB)
    assert (view.state, view.attempt.number) == ("running", 1)
    assert [part.node for part in view.parts] == ["node1", "node2", "node3"]
    assert lab.live.jobs[JOB].state == "running"
    requests = [agent.leases[JOB, 1] for agent in lab.agents]
    assert [request.hold_port for request in requests] == [0, None, None]
    assert {request.interface for request in requests} == {"lo"}
    attempts = {agent.jobs[JOB].attempt for agent in lab.agents}
    assert len(attempts) == 1, "everybody was told the same"
    (attempt,) = attempts
    # Whoever is to be told of the job is so before it may run.
    ((told, asked),) = begun
    assert asked == [[1] * 3, [0] * 3]
    assert (told.job_id, told.state, told.attempt) == (JOB, "starting", attempt)
    assert [part.node for part in told.parts] == [part.node for part in view.parts]
    assert attempt.master_address == lab.agents[0].address
    assert attempt.master_port > 30000
    assert [p.address for p in attempt.placements] == [agent.address for agent in lab.agents]
    assert lab.agents[1].jobs[JOB].submitted_by == "test"


async def test_the_head_is_the_first_participant_and_the_users_port_is_asked_of_it(
    lab: Lab,
) -> None:
    view = await lab.launcher.launch(lab.spec("node3", "node1", port=29401), JOB)
    assert view.attempt.master_port == 29401
    assert view.attempt.master_address == lab.agents[2].address
    assert lab.agents[2].leases[JOB, 1].hold_port == 29401
    assert lab.agents[0].leases[JOB, 1].hold_port is None


async def test_a_single_node_needs_no_network(lab: Lab) -> None:
    view = await lab.launcher.launch(lab.spec("node2"), JOB)
    (place,) = view.attempt.placements
    assert (place.interface, place.address) == ("lo", "127.0.0.1")
    assert lab.agents[0].count("lease") == 0


async def test_launching_again_with_the_same_id_changes_nothing(lab: Lab) -> None:
    first = await lab.launcher.launch(lab.spec(), JOB)
    again = await lab.launcher.launch(lab.spec(), JOB)
    assert again.attempt == first.attempt
    assert [agent.count("start") for agent in lab.agents] == [1, 1, 1]


@pytest.mark.wording
@pytest.mark.parametrize("route", ["lease", "start"])
async def test_one_refusal_and_nobody_has_anything(lab: Lab, route: str) -> None:
    lab.agents[1].faults[route].append(Refuse(cause="GPU 0 is promised to j-00000009"))
    with pytest.raises(RefusedError) as caught:
        await lab.launcher.launch(lab.spec(), JOB)
    assert str(caught.value) == ("node2: GPU 0 is promised to j-00000009. Fix: come back tomorrow.")
    lab.assert_nothing_is_left()


async def test_a_launch_says_how_far_it_is(lab: Lab) -> None:
    heard = Heard()
    await lab.launcher.launch(lab.spec(), JOB, progress=heard)
    counted = [(done, 3) for done in range(4)]
    assert list(heard.pieces().items()) == [
        ("asking the nodes", counted),
        ("leasing GPUs and ports", counted),
        (f"starting torchrun of {JOB}", counted),
    ]
    heard = Heard()
    await lab.launcher.stop(JOB, reason="enough", grace_s=0.0, progress=heard)
    assert heard.pieces() == {f"telling the nodes to stop {JOB}": counted}


async def test_a_launch_that_fails_says_how_far_undoing_it_is(lab: Lab) -> None:
    heard = Heard()
    lab.agents[1].faults["start"].append(Refuse())
    with pytest.raises(RefusedError):
        await lab.launcher.launch(lab.spec(), JOB, progress=heard)
    pieces = heard.pieces()
    assert pieces[f"starting torchrun of {JOB}"][-1] == (2, 3)
    assert pieces["releasing the leases"] == [(done, 3) for done in range(4)]


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("fault", [LoseReply(), LoseRequest()])
@pytest.mark.parametrize("route", ["lease", "start"])
async def test_lost_replies_are_asked_for_again_and_nothing_happens_twice(
    lab: Lab, route: str, fault: LoseReply, times: int
) -> None:
    for agent in lab.agents[1:]:
        agent.faults[route] += [fault] * times
    view = await lab.launcher.launch(lab.spec(), JOB)
    assert view.state == "running"
    assert [agent.count(route) for agent in lab.agents] == [1, times + 1, times + 1]
    assert len({agent.jobs[JOB].attempt for agent in lab.agents}) == 1


@pytest.mark.parametrize("route", ["lease", "start"])
async def test_replies_lost_for_good_after_it_was_done_are_undone(lab: Lab, route: str) -> None:
    """node2 acts on every request and no reply of it ever arrives, until the roll-back."""
    lab.agents[1].faults[route] += [LoseReply()] * 4
    with pytest.raises(NodeError) as caught:
        await lab.launcher.launch(lab.spec(), JOB)
    assert (caught.value.node, caught.value.kind) == ("node2", Kind.BROKEN_OFF)
    lab.assert_nothing_is_left()


@pytest.mark.parametrize("undo", ["stop", "release"])
async def test_the_roll_back_itself_insists(lab: Lab, undo: str) -> None:
    lab.agents[0].faults["start"].append(Refuse())
    for agent in lab.agents:
        agent.faults[undo] += [LoseReply(), LoseRequest(), LoseReply()]
    with pytest.raises(RefusedError):
        await lab.launcher.launch(lab.spec(), JOB)
    lab.assert_nothing_is_left()


async def test_what_cannot_be_undone_is_said(lab: Lab) -> None:
    """node3 dies between its lease and its start."""
    lab.agents[2].faults["start"] += [LoseRequest()] * 4
    lab.agents[2].faults["stop"] += [LoseRequest()] * 4
    with pytest.raises(NodeError) as caught:
        await lab.launcher.launch(lab.spec(), JOB)
    assert caught.value.left_behind
    assert JOB in str(caught.value)
    assert says("node3 does not answer", str(caught.value))
    assert says("leases expire in 15 s", str(caught.value))
    assert says(f"mntrain stop {JOB}", str(caught.value))
    assert "\n" not in str(caught.value)
    lab.agents[2].leases.clear()
    lab.assert_nothing_is_left()


async def test_a_start_that_arrives_after_the_roll_back_is_refused(lab: Lab) -> None:
    """node2's start is on its way for longer than the launch lives."""
    lab.agents[0].faults["start"].append(Refuse())
    held = Held()
    lab.agents[1].faults["start"].append(held)
    launching = asyncio.create_task(lab.launcher.launch(lab.spec(), JOB))
    await coming(lambda: lab.agents[1].count("start") == 1)
    launching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await launching
    held.released.set()
    await coming(lambda: "start" in lab.agents[1].answered)
    assert JOB not in lab.agents[1].jobs
    lab.assert_nothing_is_left()


async def test_ctrl_c_gives_everything_back(lab: Lab) -> None:
    lab.agents[1].faults["start"].append(Hang())
    launching = asyncio.create_task(lab.launcher.launch(lab.spec(), JOB))
    await coming(lambda: JOB in lab.agents[0].jobs and JOB in lab.agents[2].jobs)
    launching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await launching
    lab.assert_nothing_is_left()


async def test_a_refusal_tells_more_than_a_silence(lab: Lab) -> None:
    lab.agents[0].faults["lease"] += [LoseRequest()] * 4
    lab.agents[2].faults["lease"].append(Refuse(cause="no GPU 7"))
    with pytest.raises(RefusedError, match="node3: no GPU 7"):
        await lab.launcher.launch(lab.spec(), JOB)
    lab.assert_nothing_is_left()


async def test_leases_that_took_long_are_renewed_before_the_start(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gang_start, "RENEW_AFTER_S", 0.05)
    lab.agents[1].faults["lease"].append(Slow(0.1))
    await lab.launcher.launch(lab.spec(), JOB)
    assert [agent.count("lease") for agent in lab.agents] == [2, 2, 2]


@pytest.mark.parametrize(
    ("participants", "said"),
    [
        ((Participant(node="node1"), Participant(node="nod2")), "unknown node 'nod2'"),
        (
            (Participant(node="node1"), Participant(node="id-of-node1")),
            "is listed 2 times as a participant",
        ),
        ((Participant(node="node1", gpus=(0,)),), "node1: has no GPU, but GPU 0 is requested"),
        ((Participant(node="node1", interface="eth9"),), "node1: has no interface 'eth9'"),
    ],
)
async def test_what_the_nodes_do_not_have_is_refused_before_anything_is_leased(
    lab: Lab, participants: tuple[Participant, ...], said: str
) -> None:
    with pytest.raises(SpecError) as caught:
        await lab.launcher.launch(lab.spec(participants=participants), JOB)
    assert says(said, str(caught.value))
    assert caught.value.fix
    assert [agent.count("lease") for agent in lab.agents] == [0, 0, 0]


async def test_a_script_that_is_not_sent_is_refused_before_anybody_is_asked(lab: Lab) -> None:
    with pytest.raises(SpecError, match=wording("not sent with the job")):
        await lab.launcher.launch(lab.spec(entry=("train.py",)), JOB)
    assert [agent.count("node") for agent in lab.agents] == [0, 0, 0]


async def test_a_node_that_is_gone_is_named_with_its_reason(lab: Lab) -> None:
    await lab.agents[1].die()
    with pytest.raises(NodeError) as caught:
        await lab.launcher.launch(lab.spec(), JOB)
    assert caught.value.node == "node2"
    assert says("refused", str(caught.value))
    assert caught.value.fix
    assert [agent.count("lease") for agent in lab.agents] == [0, 0, 0]


async def test_two_machines_with_one_id_take_part_in_nothing(
    lab: Lab, agent_here: MakeAgent
) -> None:
    copy = await agent_here("copy", node_id="id-of-node2", hostname="clone", heartbeat_every_s=0.3)
    lab.live.watch(copy.where, "typed")
    await coming(lambda: any(view.is_conflict for view in lab.live.nodes))
    for name in ("node2", "copy"):
        with pytest.raises(NodeError, match=wording("same node id")) as caught:
            await lab.launcher.launch(lab.spec("node1", name), JOB)
        assert caught.value.fix
    lab.assert_nothing_is_left()


async def test_rendering_asks_for_nothing(lab: Lab) -> None:
    first, second = await lab.launcher.render(lab.spec("node1", "node2", port=29500))
    assert (first.node, second.node) == ("node1", "node2")
    assert first.argv[0] == "/usr/bin/python3"
    assert "--master-port=29500" in first.argv
    assert f"--master-addr={lab.agents[0].address}" in second.argv
    assert "--node-rank=1" in second.argv
    assert second.directory.startswith("/state/node2/jobs/j-00000000/attempt-1")
    assert [agent.count("lease") for agent in lab.agents] == [0, 0, 0]


async def test_stopping_asks_everybody_and_again_where_the_reply_is_lost(lab: Lab) -> None:
    await lab.launcher.launch(lab.spec(), JOB)
    lab.agents[1].faults["stop"].append(LoseRequest())
    view = await lab.launcher.stop(JOB, reason="enough", grace_s=0.5)
    assert (view.state, {part.stop_reason for part in view.parts}) == ("canceled", {"enough"})
    assert [agent.jobs[JOB].part.stop_reason for agent in lab.agents] == ["enough"] * 3


async def test_stopping_with_one_node_gone_ends_the_others_and_says_unknown(lab: Lab) -> None:
    await lab.launcher.launch(lab.spec(), JOB)
    await lab.agents[1].die()
    view = await lab.launcher.stop(JOB, reason="enough", grace_s=0.0)
    states = {part.node: part.state for part in view.parts}
    assert states["node1"] == states["node3"] == "canceled"
    assert states["node2"] != "canceled"
    assert view.state == "stopping"


async def test_stopping_with_nobody_there_is_an_error(lab: Lab) -> None:
    await lab.launcher.launch(lab.spec(), JOB)
    for agent in lab.agents:
        await agent.die()
    with pytest.raises(NodeError):
        await lab.launcher.stop(JOB, reason="enough", grace_s=0.0)


async def test_a_launch_adds_next_to_nothing(lab: Lab) -> None:
    """Two round trips, a fresh look at the nodes and the doctor's: not more requests than that."""
    await lab.launcher.launch(lab.spec(), JOB)
    for agent in lab.agents:
        asked = [route for _, route in agent.requests if route not in ("stream", "jobs")]
        paths = ["paths"] * 3  # to listen, to try, and to end it
        assert sorted(asked) == sorted(["node", "facts", *paths, "lease", "start"])


def test_the_timeouts_leave_room_for_a_retry_within_a_lease() -> None:
    assert transport_module.CONNECT_TIMEOUT_S < gang_start.RENEW_AFTER_S
    assert 2 * transport_module.ANSWER_TIMEOUT_S < gang_start.LEASE_EXPIRY_S
