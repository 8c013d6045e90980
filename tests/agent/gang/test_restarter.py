"""Restarter: the head's agent starts the next attempt after a failure."""

from __future__ import annotations

import json
import os
import signal
import ssl
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import msgspec
import pytest

from jupyter_mntrain.agent.attempt.processes import kill_all, marked
from jupyter_mntrain.agent.gang.watch import WATCH_INTERVAL_S
from jupyter_mntrain.model.api import LeaseRequest, StartRequest
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.lifecycle.rollup import roll_up
from jupyter_mntrain.model.records.job import (
    TERMINAL,
    ChangedValue,
    Earlier,
    JobView,
    Restart,
    RunningChange,
)
from jupyter_mntrain.model.sources.slots import SLOT_FILE
from jupyter_mntrain.trust.certificates import Subject
from tests import trusted
from tests.agent.forking.python import is_torchrun
from tests.agent.live import LiveAgent, free_port, launch, two_agents
from tests.cluster.test_real_agents import processes_of
from tests.standin.plans import plan_of
from tests.waiting import until

# With agents.

SCRIPT = """
import os, pathlib, sys, time
from jupyter_mntrain import Recorder
kept = pathlib.Path(os.environ["MNTRAIN_CHECKPOINT_DIR"])
kept.mkdir(exist_ok=True)
done = int((kept / "step").read_text()) if (kept / "step").exists() else 0
with Recorder() as recorder:
    for step in range(done + 1, 1000):
        recorder.step(step=step)
        (kept / "new").write_text(str(step))
        (kept / "new").replace(kept / "step")  # whole also when this rank is killed just now
        if int(os.environ["MNTRAIN_ATTEMPT"]) > int(sys.argv[1]) and step > done + 3:
            break
        time.sleep(0.05)
"""
"""Ends by itself only after so many attempts."""

ONCE, TWICE = ("script.py", "1"), ("script.py", "2")

IMPATIENT = {"MNTRAIN_RESTARTS_GIVE_UP_AFTER_S": "10", "MNTRAIN_RESTARTS_LEAVE_OUT_AFTER_S": "12"}
"""Agents that wait a minute and half a minute for a silent node elsewhere."""


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[LiveAgent]]:
    state = tmp_path_factory.mktemp("restarts")
    with two_agents("127.93.0", state, "test") as both:
        yield both


@pytest.fixture
def three(tmp_path: Path) -> Iterator[list[LiveAgent]]:
    made = []
    for n in range(1, 4):
        address, state = f"127.93.1.{n}", tmp_path / f"node{n}"
        port = free_port(address)
        made.append(LiveAgent(f"node{n}", address, port, state))
    try:
        yield [agent.start(environment=IMPATIENT) for agent in made]
    finally:
        for agent in made:
            agent.end()


def power_off(agent: LiveAgent) -> None:
    """As far as the others can tell."""
    agent.kill()
    for attempt in agent.state.glob("jobs/*/attempt-*"):
        kill_all(partial(marked, attempt))


@pytest.mark.slow
@pytest.mark.parametrize("lost", [2, 0], ids=["another node", "the head"])
def test_a_job_goes_on_without_a_node_that_is_lost(three: list[LiveAgent], lost: int) -> None:
    rest = [agent for agent in three if agent is not three[lost]]
    job_id = launch(three, SCRIPT, entry=ONCE, max_restarts=2, min_nodes=2, plan=plan_of())
    until(lambda: all(steps(agent, job_id) for agent in three), "the first steps")
    power_off(three[lost])
    kill_rank(rest[1], job_id)
    until(lambda: told(rest, job_id).state == "succeeded", "the rest to go on")
    now = told(rest, job_id)
    assert [place.node for place in now.attempt.placements] == [agent.name for agent in rest]
    assert now.attempt.number >= 2
    assert now.attempt.plan is None, "it was for one rank more"
    assert [rank.rank for part in now.parts for rank in part.ranks] == [0, 1]
    # A script's learning rate and its part of the data depend on how many ranks there were.
    attempt = rest[0].state / "jobs" / job_id / f"attempt-{now.attempt.number}"
    told_to_ranks = json.loads((attempt / "command.json").read_text())["environment"]
    assert told_to_ranks["MNTRAIN_FIRST_WORLD_SIZE"] == "3"
    # Whoever was away learns that it went on without it, and begins nothing of its own.
    three[lost].start()
    until(lambda: three[lost].record(job_id).part.state != "running", "its part to be over")
    if lost == 0:
        until(lambda: three[0].record(job_id).is_over, "the head to know")
    assert told(three, job_id).state == "succeeded"
    assert not any(agent.info().leases for agent in three)


def told(agents: list[LiveAgent], job_id: JobId) -> JobView:
    return roll_up([agent.record(job_id) for agent in agents])


def steps(agent: LiveAgent, job_id: JobId) -> bool:
    return any(rank.step for rank in agent.record(job_id).part.ranks)


def starters(agent: LiveAgent, job_id: JobId) -> list[str]:
    """Who started the attempts of a job, by the agent's audit log."""
    lines = map(json.loads, (agent.state / "audit.log").read_text().splitlines())
    return [one["who"] for one in lines if one["what"] == "start" and one["job"] == job_id]


def kill_rank(agent: LiveAgent, job_id: JobId, number: int = signal.SIGKILL) -> None:
    pid = agent.record(job_id).part.ranks[0].pid
    assert pid is not None
    os.kill(pid, number)


@pytest.mark.slow
def test_a_rank_that_is_killed_or_frozen_costs_an_attempt_not_the_job(
    agents: list[LiveAgent],
) -> None:
    job_id = launch(agents, SCRIPT, entry=TWICE, max_restarts=2, on_stall="abort", plan=plan_of())
    until(lambda: all(steps(agent, job_id) for agent in agents), "the first steps")
    kill_rank(agents[1], job_id)
    states = set()

    def has_come_to(number: int) -> bool:
        now = told(agents, job_id)
        states.add(now.state)
        return now.attempt.number == number and all(steps(agent, job_id) for agent in agents)

    until(lambda: has_come_to(2), "the second attempt")
    for agent in agents:  # each steps by itself, so both must stand still
        kill_rank(agent, job_id, signal.SIGSTOP)
    until(lambda: has_come_to(3) and told(agents, job_id).state in TERMINAL, "the end")
    now = told(agents, job_id)
    assert (now.state, now.attempt.number) == ("succeeded", 3), now
    assert "failed" not in states
    assert now.attempt.plan == plan_of(), "the same nodes, the same plan"
    first_step = min(rank.step or 0 for part in now.parts for rank in part.ranks)
    assert first_step > 4, "it went on where the one before was"
    for agent in agents:
        who = [one.split(" ")[0] for one in starters(agent, job_id)]
        assert who == ["driver", "node", "node"]
    assert not any(agent.info().leases for agent in agents)


@pytest.mark.slow
def test_a_stop_between_attempts_ends_the_job(agents: list[LiveAgent]) -> None:
    job_id = launch(agents, "import os; os.abort()", max_restarts=9)
    until(lambda: agents[0].record(job_id).restart is not None, "an attempt to be planned")
    for agent in agents:
        agent.send("POST", f"/v1/jobs/{job_id}/stop", {"reason": "enough"})
    until(lambda: told(agents, job_id).state in ("failed", "canceled"), "the end")
    head = agents[0].record(job_id)
    assert head.is_over
    assert head.restart is None
    assert not any(agent.info().leases for agent in agents)


FAILS = """
from jupyter_mntrain import Recorder
with Recorder() as recorder:
    recorder.step()
    raise ValueError("always")
"""


@pytest.mark.slow
def test_after_the_last_attempt_it_has_failed_and_all_parts_tell_their_times_by_one_clock(
    agents: list[LiveAgent],
) -> None:
    ahead_s, begun_s = 3600.0, time.time() + 3600.0
    job = launch(agents, FAILS, max_restarts=1, ahead_s=ahead_s)
    until(lambda: told(agents, job).state == "failed", "the second attempt to fail, too")
    now_s = time.time() + ahead_s
    for agent in agents:
        known = agent.record(job)
        assert known.attempt.number == 2
        lines = agent.get(f"/v1/jobs/{job}/journal").content.splitlines()
        times = [json.loads(line)["body"]["time_s"] for line in lines]
        times += [known.part.started_s, known.part.ended_s]
        times += [known.part.problem.time_s] if known.part.problem else []
        assert len(times) > 8
        # torch tells a failure's time without its fraction.
        assert all(begun_s - 1 < time_s <= now_s for time_s in times)
    problem = told(agents, job).problem
    assert problem is not None
    assert problem.kind is Kind.EXCEPTION


WAITS = "import time; time.sleep(600)"

ENDS = """
import pathlib, time
from jupyter_mntrain import Recorder
with Recorder() as recorder:
    step = 0
    while not pathlib.Path({may_end!r}).exists():
        recorder.step(step=(step := step + 1))
        time.sleep(0.05)
"""


@pytest.mark.slow
def test_an_attempt_whose_ranks_have_ended_is_not_given_up_as_stalled(
    agents: list[LiveAgent], tmp_path: Path
) -> None:
    """torchrun is slow to notice the end, as on a machine that is busy with other work."""
    may_end = tmp_path / "may-end"
    job_id = launch(agents, ENDS.format(may_end=str(may_end)), on_stall="abort")
    until(lambda: all(steps(agent, job_id) for agent in agents), "the first steps")
    slow = [one for one in processes_of(job_id) if is_torchrun(one.cmdline())]
    assert len(slow) == 2
    for one in slow:
        one.suspend()
    may_end.touch()

    def are_judged() -> bool:
        """By then each agent has tried its links, after which a stalled job is given up."""
        found = [agent.record(job_id).part.evidence for agent in agents]
        return all(one is not None and one.links is not None for one in found)

    until(are_judged, "the limit of a step to pass")
    time.sleep(3 * WATCH_INTERVAL_S)
    for one in slow:
        one.resume()
    until(lambda: told(agents, job_id).state in TERMINAL, "the end")
    assert told(agents, job_id).state == "succeeded"


def kind_and_node(plan: Restart | None) -> tuple[Kind, str | None] | None:
    """Of what an attempt waits for."""
    return plan and plan.waits_for and (plan.waits_for.kind, plan.waits_for.node)


@pytest.mark.slow
def test_an_agent_that_was_away_is_waited_for(tmp_path: Path) -> None:
    with two_agents("127.94.0", tmp_path, "test", IMPATIENT) as agents:
        job_id = launch(agents, SCRIPT, entry=ONCE, max_restarts=1)
        until(lambda: all(steps(agent, job_id) for agent in agents), "the first steps")
        agents[1].kill()
        kill_rank(agents[0], job_id)
        until(lambda: agents[0].record(job_id).restart is not None, "a plan")
        plan = agents[0].record(job_id).restart
        assert plan is not None
        until(
            lambda: kind_and_node(agents[0].record(job_id).restart) == (Kind.SILENT, "node2"),
            "the reason",
        )
        assert agents[0].info().leases == ()
        # The head's agent goes, too, and remembers what it was about.
        agents[0].kill()
        for agent in agents:
            agent.start()
        until(lambda: told(agents, job_id).state == "succeeded", "the second attempt")
        assert told(agents, job_id).attempt.number == 2


@pytest.mark.slow
def test_a_head_cannot_start_what_no_driver_has_deposited(
    agents: list[LiveAgent], tmp_path: Path
) -> None:
    """With the head's own certificate: as whoever has broken into its machine would."""
    head, other = agents
    jobs = {
        "restarts": launch(agents, WAITS, max_restarts=5),
        "none": launch(agents, WAITS, port=0),
        "not its head": launch([other, head], WAITS, max_restarts=5),
    }
    subject = Subject(role="node", name=head.info().node_id)
    certificate = trusted.make_credentials(tmp_path, subject).unnamed_client
    certificate.verify_mode = ssl.CERT_NONE

    def status(method: str, path: str, body: object = None) -> int:
        answer = httpx.request(
            method, f"{other.url}{path}", verify=certificate, content=msgspec.json.encode(body)
        )
        return answer.status_code

    def start(job_id: JobId, **changes: object) -> int:
        attempt = msgspec.structs.replace(other.record(job_id).attempt, number=2)
        request = StartRequest(job_id=job_id, spec=other.spec(job_id), attempt=attempt)
        return status(
            "PUT", f"/v1/jobs/{job_id}/attempts/2", msgspec.structs.replace(request, **changes)
        )

    job_id = jobs["restarts"]
    lease = LeaseRequest(job_id=job_id, attempt=2, ranks=1, interface="lo")
    evil = msgspec.structs.replace(other.spec(job_id), files={"script.py": "evil()"})
    moved = msgspec.structs.replace(
        other.record(job_id).attempt,
        number=2,
        placements=tuple(
            msgspec.structs.replace(place, nproc=8)
            for place in other.record(job_id).attempt.placements
        ),
    )
    assert start(job_id, spec=evil) == 403
    assert start(job_id, attempt=moved) == 403
    changed = RunningChange("a", 1, 1.0, values=(ChangedValue("data.source", "a", "/etc"),))
    earlier = Earlier(world_size=2, changes=(changed,))
    attempt = msgspec.structs.replace(other.record(job_id).attempt, number=2, earlier=earlier)
    assert start(job_id, attempt=attempt) == 403
    assert start(jobs["none"]) == 403
    assert start(jobs["not its head"]) == 403
    for wrong in ({"ranks": 8}, {"interface": "eth0"}, {"hold_port": 0}, {"gpus": (0,)}):
        assert status("POST", "/v1/leases", msgspec.structs.replace(lease, **wrong)) == 403
    assert status("POST", "/v1/leases", {"job_id": job_id}) == 403
    assert status("DELETE", f"/v1/leases/{jobs['none']}/2") == 403
    assert status("POST", "/v1/leases", lease) == 200
    (other.state / SLOT_FILE).touch()  # another attempt may have found it on another machine
    assert status("POST", "/v1/leases", msgspec.structs.replace(lease, interface="eth0")) != 403
    assert start(job_id) == 409, "the attempt before it still runs"
    for job_id in jobs.values():
        for agent in agents:
            agent.send("POST", f"/v1/jobs/{job_id}/stop", {"reason": "enough", "grace_s": 0})
            agent.ended(job_id)
