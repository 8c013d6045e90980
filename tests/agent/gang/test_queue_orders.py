"""Queue orders: thousands of orders of leases, starts and stops, some of them lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from jupyter_mntrain.agent.gang import restarter as restarts_module
from jupyter_mntrain.agent.gang.peer_client import silence
from jupyter_mntrain.agent.gang.restarter import Restarter
from jupyter_mntrain.agent.jobs.leases import LeaseBook
from jupyter_mntrain.launch.gang_start import GangMember, GangStart
from jupyter_mntrain.launch.torchrun import RENDEZVOUS_TIMEOUT_S
from jupyter_mntrain.model.api import LeaseGrant, LeaseRequest, StartRequest, StopRequest
from jupyter_mntrain.model.errors import JobNotFoundError, MntrainError, RefusedError
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.lifecycle.queueing import kept_for, order
from jupyter_mntrain.model.lifecycle.state import new_part
from jupyter_mntrain.model.records.job import (
    JobRecord,
    Placement,
    Restart,
)
from tests.model.lifecycle.waiting_jobs import NOW_S, node_id, queued
from tests.searches import count

T = TypeVar("T")


class NoAudit:
    """Nobody reads here who asked."""

    def note(self, what: str, **about: str) -> None:
        pass


class OnAMachine:
    """Its state directory has no sign of an allocation, so its GPUs are always the same."""

    path = Path("nowhere")


class SimulatedNode:
    """One agent: real leases, real order, no processes."""

    audit = NoAudit()
    state = OnAMachine()

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

    async def lease_for(self, request: LeaseRequest) -> LeaseGrant:
        return self.lease(request)

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

    def stop(self, job_id: JobId, request: StopRequest) -> JobRecord:
        self.end(job_id, request.attempt)
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
        return await self._sim.carry(lambda: self._node.stop(job_id, request))

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
    at_once = partial(GangStart, pauses_s=(0.0, 0.0))
    monkeypatch.setattr(restarts_module, "GangStart", {GangMember: at_once})
    for seed in range(count(short=200, long=2000)):
        sim = Simulation(seed)
        asyncio.run(sim.run())
        assert sorted(sim.begun) == sorted(sim.records), f"seed {seed}"
        for node in sim.nodes.values():
            assert not node.running
