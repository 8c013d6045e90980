"""Gang start: all or nothing, over agents in memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import pytest

from jupyter_mntrain.launch import gang_start
from jupyter_mntrain.launch.gang_start import GangStart
from jupyter_mntrain.model.api import LeaseGrant, LeaseRequest, StartRequest, StopRequest
from jupyter_mntrain.model.errors import JobNotFoundError, MntrainError, NodeError, RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import JobId, NodeId, Rank
from jupyter_mntrain.model.lifecycle.state import new_part
from jupyter_mntrain.model.records.job import (
    Attempt,
    JobRecord,
    JobSpec,
    Participant,
    Placement,
)
from jupyter_mntrain.model.records.node import Workplace
from tests.wording import says

JOB = JobId("j-0000beef")
SPEC = JobSpec(entry=("a.py",), participants=(Participant("x"),))


class Agent:
    """Does what is asked, except for what ``fails``; ``calls`` of all agents are in one list."""

    def __init__(self, name: str, calls: list[tuple[str, str]], **fails: MntrainError) -> None:
        self.name = name
        self.has_lease = self.is_running = False
        self.asked = LeaseRequest(job_id=JOB, attempt=0, ranks=1)
        self._calls = calls
        self._fails = fails

    def _called(self, what: str) -> None:
        self._calls.append((what, self.name))
        if what in self._fails:
            raise self._fails[what]

    async def lease(self, request: LeaseRequest) -> LeaseGrant:
        self._called("lease")
        self.asked = request
        self.has_lease = True
        return LeaseGrant(address="10.0.0.1", port=request.hold_port and 1, expires_s=0.0)

    async def start(self, request: StartRequest) -> JobRecord:
        self._called("start")
        self.is_running = True
        part = new_part(NodeId(self.name), self.name, range(1))
        return JobRecord(job_id=JOB, spec=SPEC, attempt=request.attempt, part=part)

    async def job(self, job_id: JobId) -> JobRecord:
        raise JobNotFoundError(job_id)

    async def stop(self, job_id: JobId, request: StopRequest) -> JobRecord:
        self._called("stop")
        self.is_running = False
        raise JobNotFoundError(job_id)

    async def release(self, job_id: JobId, attempt: int) -> None:
        self._called("release")
        self.has_lease = False


def gang(agents: Sequence[Agent]) -> GangStart[Agent]:
    """In node-rank order; node ids are the agents' names."""
    spec = JobSpec(entry=SPEC.entry, participants=SPEC.participants, port=29500)
    return GangStart(JOB, 1, spec, [(place(n, a), a) for n, a in enumerate(agents)], pauses_s=())


def place(rank: int, agent: Agent) -> Placement:
    return Placement(
        node_id=NodeId(agent.name),
        node=agent.name,
        node_rank=rank,
        first_rank=Rank(rank),
        nproc=1,
        gpus=(),
        interface="eth1",
        address="10.0.0.1",
        agent=("10.0.0.1:8765",),
    )


def start(made: GangStart[Agent], *, head_last: bool = False) -> list[JobRecord]:
    attempt = Attempt(number=1, placements=(), master_address="", master_port=1, submitted_s=0.0)

    def request(_: Sequence[LeaseGrant]) -> StartRequest:
        return StartRequest(job_id=JOB, spec=SPEC, attempt=attempt)

    return asyncio.run(made.start(request, now=time.time, head_last=head_last))


def silence(kind: Kind = Kind.SILENT) -> NodeError:
    return NodeError("silent", kind=kind)


def test_leases_are_taken_in_the_order_of_node_ids_whatever_the_ranks() -> None:
    calls: list[tuple[str, str]] = []
    start(gang([Agent(name, calls) for name in ("c", "a", "b")]))
    assert calls[:3] == [("lease", "a"), ("lease", "b"), ("lease", "c")]
    assert sorted(calls[3:]) == [("start", "a"), ("start", "b"), ("start", "c")]


def test_a_lease_asks_for_the_address_and_the_workplace_that_the_launch_chose() -> None:
    agent = Agent("a", [])
    start(gang([agent]))
    assert (agent.asked.interface, agent.asked.address) == ("eth1", "10.0.0.1")
    assert agent.asked.workplace is None
    spec = JobSpec(entry=("-m", "jupyter_mntrain.train"), participants=(), python="conda:lm")
    start(GangStart(JOB, 1, spec, [(place(0, agent), agent)], pauses_s=()))
    assert agent.asked.workplace == Workplace(python="conda:lm", trains=True)


def test_the_head_is_started_last_where_it_must_be() -> None:
    calls: list[tuple[str, str]] = []
    start(gang([Agent(name, calls) for name in ("a", "b", "c")]), head_last=True)
    assert calls[-1] == ("start", "a")


def test_a_refused_lease_asks_nobody_further_and_only_gives_back() -> None:
    calls: list[tuple[str, str]] = []
    agents = [Agent("a", calls), Agent("b", calls, lease=RefusedError("no")), Agent("c", calls)]
    made = gang(agents)
    with pytest.raises(RefusedError):
        start(made)
    assert ("lease", "c") not in calls
    assert {what for what, _ in calls} == {"lease", "release"}
    assert not made.is_begun
    assert not any(agent.has_lease for agent in agents)


def test_every_silent_node_is_known_after_one_try_and_a_refusal_says_more() -> None:
    calls: list[tuple[str, str]] = []
    silent = [Agent(name, calls, lease=silence()) for name in ("a", "b")]
    made = gang([*silent, Agent("c", calls)])
    with pytest.raises(NodeError):
        start(made)
    assert made.silent == {"a", "b"}
    with pytest.raises(RefusedError, match="no GPU"):
        start(gang([*silent, Agent("c", calls, lease=RefusedError("no GPU"))]))


def test_a_failed_start_is_stopped_everywhere_and_says_what_is_left() -> None:
    calls: list[tuple[str, str]] = []
    lost = Agent("b", calls, start=silence(), stop=silence())
    agents = [Agent("a", calls), lost, Agent("c", calls)]
    made = gang(agents)
    with pytest.raises(NodeError):
        start(made)
    assert made.is_begun
    assert [agent.is_running for agent in agents] == [False] * 3
    assert [agent.has_lease for agent in agents] == [False, True, False]
    (left,) = made.left
    assert left.startswith("b ")
    assert says("b does not answer", left)


def test_leases_that_took_long_are_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gang_start, "RENEW_AFTER_S", -1.0)
    calls: list[tuple[str, str]] = []
    start(gang([Agent(name, calls) for name in ("a", "b")]))
    assert [what for what, _ in calls] == ["lease"] * 4 + ["start"] * 2
