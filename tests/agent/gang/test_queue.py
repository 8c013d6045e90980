"""Jobs that wait for what others have: nobody gets half, nobody waits for ever."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from jupyter_mntrain.agent.gang import restarter as restarts_module
from jupyter_mntrain.agent.gang.peer_client import silence
from jupyter_mntrain.agent.gang.restarter import Restarter
from jupyter_mntrain.agent.jobs.leases import LeaseBook
from jupyter_mntrain.launch.torchrun import RENDEZVOUS_TIMEOUT_S
from jupyter_mntrain.model.api import LeaseGrant, LeaseRequest, StartRequest, StopRequest
from jupyter_mntrain.model.errors import JobNotFoundError, MntrainError, RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import JobId, NodeId, Rank, new_job_id
from jupyter_mntrain.model.lifecycle.queueing import KEPT_AFTER_S, kept_for, order
from jupyter_mntrain.model.lifecycle.rollup import roll_up
from jupyter_mntrain.model.lifecycle.state import new_part
from jupyter_mntrain.model.records.job import (
    TERMINAL,
    Attempt,
    JobRecord,
    JobSpec,
    JobState,
    Participant,
    Placement,
    Restart,
)
from tests.agent.live import LiveAgent, free_port, start_request, two_agents
from tests.searches import count
from tests.waiting import until

NOW_S = 1000.0
T = TypeVar("T")


def node_id(number: int) -> NodeId:
    return NodeId(f"{number:032x}")


def queued(
    number: int,
    gpus: dict[int, tuple[int, ...]],
    *,
    on: int | None = None,
    priority: int = 0,
    submitted_s: float = 0.0,
) -> JobRecord:
    """A job that wants GPUs by node, as node ``on`` keeps it, or its head."""
    placements = tuple(
        Placement(
            node_id=node_id(one),
            node=f"node{one}",
            node_rank=rank,
            first_rank=Rank(rank),
            nproc=1,
            gpus=ids,
            interface="eth1",
            address=f"10.0.0.{one}",
            agent=(f"10.0.0.{one}:8765",),
        )
        for rank, (one, ids) in enumerate(gpus.items())
    )
    own = placements[0].node_id if on is None else node_id(on)
    return JobRecord(
        job_id=JobId(f"j-{number:08x}"),
        spec=JobSpec(entry=("a.py",), participants=(Participant("x"),), priority=priority),
        attempt=Attempt(
            number=0,
            placements=placements,
            master_address="",
            master_port=0,
            submitted_s=submitted_s,
        ),
        part=new_part(own, "x", range(1)),
        restart=Restart(number=1, at_s=0.0),
    )


# Who comes first


def first_of(
    asks: JobRecord, *waiting: JobRecord, gpus: tuple[int, ...] = (0,)
) -> JobRecord | None:
    return kept_for(asks.job_id, gpus, [*waiting, asks], mine=order(asks), now_s=NOW_S)


def test_a_job_of_higher_priority_comes_first() -> None:
    urgent = queued(1, {1: (0,)}, priority=5, submitted_s=NOW_S)
    asks = queued(2, {1: (0,)})
    assert first_of(asks, urgent) == urgent
    assert first_of(urgent, asks) is None


def test_among_equals_others_may_pass_for_a_minute_and_then_no_more() -> None:
    asks = queued(2, {1: (0,)}, submitted_s=NOW_S)
    fresh = queued(1, {1: (0,)}, submitted_s=NOW_S - KEPT_AFTER_S + 1)
    waits = queued(1, {1: (0,)}, submitted_s=NOW_S - KEPT_AFTER_S)
    assert first_of(asks, fresh) is None
    assert first_of(asks, waits) == waits


def test_nothing_is_kept_that_the_other_does_not_want() -> None:
    urgent = queued(1, {1: (1,)}, priority=5)
    assert first_of(queued(2, {1: (0,)}), urgent) is None


# Thousands of orders in which things may happen


class SimulatedNode:
    """One agent: real leases, real order, no processes."""

    def __init__(self, number: int, sim: Simulation) -> None:
        self.node_id = node_id(number)
        self.leases = LeaseBook(clock=lambda: sim.now_s)
        self.jobs = self
        self.waiting: dict[JobId, JobRecord] = {}
        self.running: dict[JobId, tuple[int, ...]] = {}
        self._begun_s: dict[JobId, float] = {}
        self._sim = sim

    def lease(self, request: LeaseRequest) -> LeaseGrant:
        self._end_orphans()
        # An old job has waited long by now, so all of them keep what they need.
        first = kept_for(
            request.job_id,
            request.gpus,
            self.waiting.values(),
            mine=order(self._sim.records[request.job_id]),
            now_s=NOW_S,
        )
        if first is not None:
            raise RefusedError(f"kept for {first.job_id}")
        if self.leases.find(request.job_id, request.attempt) is None:
            self.leases.refuse_conflicts(request, "x")
        self.leases.grant(
            msgspec.structs.replace(request, hold_port=None), address="10.0.0.1", node="x"
        )
        return LeaseGrant(address="10.0.0.1", port=1, expires_s=0.0)

    def get(self, job_id: JobId) -> SimulatedJob:
        """A part that is over is not told from one that never began."""
        if job_id not in self.running:
            raise JobNotFoundError(f"{job_id} does not run here")
        return SimulatedJob(self._sim.records[job_id])

    def start(self, request: StartRequest) -> SimulatedJob:
        """Also what the head does by itself, at last."""
        lease = self.leases.find(request.job_id, request.attempt.number)
        if request.job_id in self.running:
            return self.get(request.job_id)
        if lease is None:
            raise RefusedError("no lease")
        for other, gpus in self.running.items():
            assert not set(gpus) & set(lease.gpus), f"{other} and {request.job_id} share a GPU"
        self.leases.start(request.job_id, request.attempt.number)
        self.running[request.job_id] = lease.gpus
        self._begun_s[request.job_id] = self._sim.now_s
        self.waiting.pop(request.job_id, None)
        return self.get(request.job_id)

    def stop(self, job_id: JobId, reason: str, grace_s: float, attempt: int | None) -> JobRecord:
        self.end(job_id, attempt)
        return self.get(job_id).record

    def end(self, job_id: JobId, attempt: int | None) -> None:
        self.running.pop(job_id, None)
        self.leases.release(job_id, attempt or 0)

    def _end_orphans(self) -> None:
        """A part that was started and whose head never was: torchrun gives up its rendezvous."""
        for job_id in list(self.running):
            head = self._sim.nodes[self._sim.records[job_id].attempt.head.node_id]
            is_old = self._sim.now_s - self._begun_s[job_id] > RENDEZVOUS_TIMEOUT_S
            if is_old and job_id not in head.running and job_id not in self._sim.begun:
                for lease in list(self.leases.all()):
                    if lease.job_id == job_id:
                        self.end(job_id, lease.attempt)


class SimulatedPeer:
    """A participant's agent as the head sees it, over a network that loses and repeats."""

    def __init__(self, sim: Simulation, place: Placement) -> None:
        self._sim = sim
        self._node = sim.nodes[place.node_id]

    async def lease(self, request: LeaseRequest) -> LeaseGrant:
        return await self._sim.carry(lambda: self._node.lease(request))

    async def start(self, request: StartRequest) -> JobRecord:
        return await self._sim.carry(lambda: self._node.start(request).record)

    async def job(self, job_id: JobId) -> JobRecord:
        return await self._sim.carry(lambda: self._node.get(job_id).record)

    async def stop(self, job_id: JobId, request: StopRequest) -> JobRecord:
        return await self._sim.carry(lambda: self._node.stop(job_id, "", 0.0, request.attempt))

    async def release(self, job_id: JobId, attempt: int) -> None:
        await self._sim.carry(lambda: self._node.leases.release_unstarted(job_id, attempt))


class SimulatedJob:
    def __init__(self, record: JobRecord) -> None:
        self.record = record

    def now_s(self) -> float:
        return NOW_S

    def plan(self, restart: Restart | None) -> None:
        self.record = msgspec.structs.replace(self.record, restart=restart)

    def give_up(self) -> None:
        raise AssertionError("nothing is a reason to give up here")


class Simulation:
    """Nodes and jobs, and a network that loses and delays what it carries."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.nodes = {node_id(n): SimulatedNode(n, self) for n in range(4)}
        self.records: dict[JobId, JobRecord] = {}
        self.begun: list[JobId] = []
        self.now_s = 0.0
        for number in range(self.chance.randrange(2, 6)):
            some = self.chance.sample(range(4), self.chance.randrange(1, 5))
            wants = {one: tuple(self.chance.sample(range(2), 1)) for one in some}
            priority = self.chance.choice([0, 0, 3])
            record = queued(number + 1, wants, priority=priority, submitted_s=float(number))
            self.records[record.job_id] = record
            for place in record.attempt.placements:
                part = new_part(place.node_id, place.node, place.ranks)
                mine = msgspec.structs.replace(record, part=part)
                self.nodes[place.node_id].waiting[record.job_id] = mine

    async def carry(self, act: Callable[[], T]) -> T:
        """The answer of a node, unless the request or the answer is lost; some come twice."""
        await self._delay()
        self.now_s += 0.1
        if self.chance.random() < 0.1:
            raise silence("x")  # the request is lost
        times = 2 if self.chance.random() < 0.1 else 1
        problem: MntrainError | None = None
        for _ in range(times):
            try:
                answer, problem = act(), None
            except MntrainError as error:
                problem = error
        await self._delay()
        if self.chance.random() < 0.1:
            raise silence("x")  # the answer is
        if problem is not None:
            raise problem
        return answer

    async def _delay(self) -> None:
        for _ in range(self.chance.randrange(3)):
            await asyncio.sleep(0)

    async def run_job(self, record: JobRecord) -> None:
        head = self.nodes[record.attempt.head.node_id]
        restarter = Restarter(head, partial(SimulatedPeer, self))  # type: ignore[arg-type]
        job: Any = SimulatedJob(record)
        assert await restarter.run(job, ()) is not None
        self.begun.append(record.job_id)
        for place in record.attempt.placements:
            assert record.job_id in self.nodes[place.node_id].running, "it runs on all or on none"
        for _ in range(self.chance.randrange(20)):
            await asyncio.sleep(0)
        number = job.record.restart.number
        for place in record.attempt.placements:
            self.nodes[place.node_id].end(record.job_id, number)

    async def run(self) -> None:
        # Whoever has not begun after so many tries never will.
        async with asyncio.timeout(20):
            await asyncio.gather(*map(self.run_job, self.records.values()))


@pytest.mark.slow
def test_every_job_gets_its_turn_whatever_comes_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restarts_module, "RETRY_S", 0.0)
    monkeypatch.setattr(restarts_module, "PAUSES_S", (0.0, 0.0))
    for seed in range(count(short=200, long=2000)):
        sim = Simulation(seed)
        asyncio.run(sim.run())
        assert sorted(sim.begun) == sorted(sim.records), f"seed {seed}"
        for node in sim.nodes.values():
            assert not node.running


# With agents


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[LiveAgent]]:
    with two_agents("127.95.0", tmp_path_factory.mktemp("queue"), "test") as both:
        yield both


SHORT = "import time; time.sleep(1)"
_submitted = itertools.count(1)


def leave(agents: list[LiveAgent], script: str, port: int, priority: int = 0) -> JobId:
    """As a driver does it, which then goes away."""
    job_id = new_job_id()
    request = start_request(agents, script, job_id, 0, 0, priority=priority)
    request = msgspec.structs.replace(
        request, spec=msgspec.structs.replace(request.spec, port=port)
    )
    attempt = msgspec.structs.replace(request.attempt, submitted_s=float(next(_submitted)))
    request = msgspec.structs.replace(request, attempt=attempt)
    for agent in reversed(agents):
        for _ in range(2):  # twice is once
            answer = agent.send("PUT", f"/v1/jobs/{job_id}", request)
            assert answer.status_code == 200, answer.text
    return job_id


def state(agents: list[LiveAgent], job_id: JobId) -> JobState:
    return roll_up([agent.record(job_id) for agent in agents]).state


@pytest.mark.slow
def test_three_jobs_that_want_the_same_run_one_after_the_other(agents: list[LiveAgent]) -> None:
    port = free_port(agents[0].address)
    jobs = [leave(agents, SHORT, port) for _ in range(3)]
    seen = set()

    def are_over() -> bool:
        states = [state(agents, job_id) for job_id in jobs]
        seen.update(states)
        waits = [agents[0].record(job_id).restart for job_id in jobs]
        seen.update(
            "a reason"
            for one in waits
            if one and one.waits_for and one.waits_for.kind is Kind.PORT_TAKEN
        )
        return all(one in TERMINAL for one in states)

    until(are_over, "all three to end", 120)
    assert [state(agents, job_id) for job_id in jobs] == ["succeeded"] * 3
    # One after another: on the head each began when the one before had ended.
    parts = [agents[0].record(job_id).part for job_id in jobs]
    times = sorted((part.started_s or 0.0, part.ended_s or 0.0) for part in parts)
    assert all(ended <= begun for (_, ended), (begun, _) in itertools.pairwise(times))
    assert {"pending", "a reason"} <= seen
    assert not any(agent.info().leases for agent in agents)


@pytest.mark.slow
def test_a_job_that_waits_survives_its_agents_and_can_be_stopped(
    agents: list[LiveAgent], tmp_path: Path
) -> None:
    port = free_port(agents[0].address)
    first = leave(agents, "import time; time.sleep(600)", port)
    until(lambda: state(agents, first) == "running", "the first to run")
    second, third = (leave(agents, SHORT, port) for _ in range(2))
    for agent in agents:
        agent.kill()
        agent.start()
    assert [state(agents, job_id) for job_id in (second, third)] == ["pending", "pending"]
    for agent in agents:
        agent.send("POST", f"/v1/jobs/{third}/stop", {"reason": "not needed"})
    assert state(agents, third) == "canceled"
    for agent in agents:
        agent.send("POST", f"/v1/jobs/{first}/stop", {"reason": "enough", "grace_s": 0})
    until(lambda: state(agents, second) == "succeeded", "the second one's turn", 60)
    assert state(agents, third) == "canceled"
