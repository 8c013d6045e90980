"""The next attempt of a job that failed, started by its head: all or nothing, as at a launch.

A driver has deposited the job on every participant, so it need not be there. Until every node has
promised what it gave before, nothing is held anywhere, and the record says what is waited for.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from jupyter_mntrain.agent.gang.peer_client import PeerClient
from jupyter_mntrain.agent.jobs.local_job import LocalJob
from jupyter_mntrain.agent.node import LocalNode
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.api import LeaseGrant, LeaseRequest, Route, StartRequest, StopRequest
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import NodeId
from jupyter_mntrain.model.lifecycle.restarts import (
    LAST_BACKOFF_S,
    may_succeed,
    next_restart,
    without,
)
from jupyter_mntrain.model.records.job import Attempt, JobRecord, PartStatus, Placement, Restart

log = logging.getLogger("mntrain.agent")

RETRY_S = tunables.seconds("restarts.retry_interval_s")

LEAVE_OUT_AFTER_S = tunables.seconds("restarts.leave_out_after_s")

TAKE_OVER_AFTER_S = tunables.seconds("restarts.take_over_after_s")

TRIES = 3
"""To tell a node to start: a reply may be lost, and asking again starts nothing twice."""


class _Granted(NamedTuple):
    """What came of asking one node."""

    placement: Placement
    grant: LeaseGrant | None
    problem: Problem | None = None


class Restarter:
    """Starts further attempts of the jobs that this node is the head of.

    Args:
        peers: asks the other participants.
    """

    def __init__(self, node: LocalNode, peers: PeerClient) -> None:
        self._node = node
        self._peers = peers

    async def run(self, job: LocalJob, parts: Sequence[PartStatus]) -> LocalJob | None:
        """The next attempt once it runs; ``None`` if there is none, or somebody stopped the job.

        Args:
            job: its attempt has ended.
            parts: how, on each node that said so.
        """
        plan = job.record.restart or next_restart(job.record, parts, job.now_s())
        if plan is None:
            job.give_up()
            return None
        job.plan(plan)
        log.info("job %s: attempt %d is next", job.record.job_id, plan.number)
        # After a reboot the clock may be another one.
        await asyncio.sleep(min(max(0.0, plan.at_s - job.now_s()), LAST_BACKOFF_S))
        silent_since_s: dict[NodeId, float] = {}
        while job.record.restart is not None:
            if await self._is_taken_over(job):
                job.give_up()
                break
            if restarted := await self._try(job, job.record.restart, silent_since_s):
                return restarted
            await asyncio.sleep(RETRY_S)
        return None

    async def succeed(self, job: LocalJob) -> LocalJob | None:
        """As :meth:`run`, in the place of a head that is lost; ``None`` if it is not, or another
        node has done it.

        Args:
            job: its attempt has ended, and starting the next one is not ours.
        """
        head, own = job.record.attempt.head, job.placement.node_rank
        between = job.record.attempt.placements[1:own]
        heard_s = time.monotonic()
        silent_since_s = {head.node_id: heard_s - LEAVE_OUT_AFTER_S}
        while self._node.jobs.get(job.record.job_id) is job and not job.record.is_over:
            await asyncio.sleep(RETRY_S)
            known = await self._records_of(job, [head, *between])
            if known:
                # The head itself, or somebody who comes before us.
                heard_s = time.monotonic()
                job.plan(None)
                if any(record.is_over for record in known):
                    job.give_up()
            elif time.monotonic() - heard_s > TAKE_OVER_AFTER_S:
                plan = job.record.restart or await self._plan_instead(job)
                if plan is None:
                    break
                job.plan(plan)
                if restarted := await self._try(job, plan, silent_since_s):
                    return restarted
        return None

    async def _plan_instead(self, job: LocalJob) -> Restart | None:
        """What a lost head would plan, but by another number: it may only have been away."""
        own = job.placement.node_rank
        after = job.record.attempt.placements[own + 1 :]
        parts = [record.part for record in await self._records_of(job, after)]
        plan = next_restart(job.record, [job.record.part, *parts], job.now_s())
        if plan is None:
            return None
        head = job.record.attempt.head.node
        log.info("job %s: replacing the head %s", job.record.job_id, head)
        return msgspec.structs.replace(plan, number=plan.number + own)

    async def _records_of(self, job: LocalJob, places: Sequence[Placement]) -> list[JobRecord]:
        """Of those participants that answer."""
        path = Route.JOB.format(job_id=job.record.job_id)
        answers = await asyncio.gather(*(self._peers.tell(place, "GET", path) for place in places))
        known = [answer.body for answer in answers if answer is not None and answer.is_success]
        return [msgspec.json.decode(body, type=JobRecord) for body in known]

    async def _is_taken_over(self, job: LocalJob) -> bool:
        """Whether another node has begun a further attempt, as its head, while we were away."""
        if not may_succeed(job.record):
            return False
        others = [p for p in job.record.attempt.placements if p.node_id != self._node.node_id]
        return any(
            record.attempt.number > job.record.attempt.number
            and record.attempt.head.node_id != self._node.node_id
            for record in await self._records_of(job, others)
        )

    async def _try(
        self, job: LocalJob, plan: Restart, silent_since_s: dict[NodeId, float]
    ) -> LocalJob | None:
        """The attempt that runs now; if there is none yet, the job says why."""
        restarted, problem = await self._start_all(job, plan, silent_since_s)
        if restarted is None and job.record.restart is not None:
            job.plan(msgspec.structs.replace(job.record.restart, waits_for=problem))
        return restarted

    async def _start_all(
        self, job: LocalJob, plan: Restart, silent_since_s: dict[NodeId, float]
    ) -> tuple[LocalJob | None, Problem | None]:
        places = self._places(job, silent_since_s)
        if places[0].node_id != self._node.node_id:
            return None, _silent(places[0])  # and too few are left without it
        asked = await self._lease_in_turn(job, plan.number, places)
        for one in asked:
            if one.problem is not None and one.problem.kind is Kind.SILENT:
                silent_since_s.setdefault(one.placement.node_id, time.monotonic())
            else:
                silent_since_s.pop(one.placement.node_id, None)
        refusal = next((one.problem for one in asked if one.problem is not None), None)
        if refusal is not None or job.record.restart is None:
            await self._release(job, plan.number, asked)
            return None, refusal
        request = self._request(job, plan.number, asked)
        others = request.attempt.placements[1:]
        answers = await asyncio.gather(*(self._start(job, request, place) for place in others))
        failure = next((problem for problem in answers if problem is not None), None)
        if failure is None and job.record.restart is not None:
            try:
                return self._node.jobs.start(_sent_now(job, request)), None
            except MntrainError as error:
                failure = error.problem
        # Some may have started: they end it, and the next try is an attempt of its own.
        await asyncio.gather(*(self._undo(request, place) for place in others))
        await self._release(job, plan.number, asked)
        if job.record.restart is not None:
            job.plan(msgspec.structs.replace(plan, number=plan.number + 1))
        return None, failure

    def _places(self, job: LocalJob, silent_since_s: dict[NodeId, float]) -> tuple[Placement, ...]:
        """Who takes part: without those that were silent for too long, if that may be."""
        places, least = job.record.attempt.placements, job.record.spec.min_nodes
        now = time.monotonic()
        gone = {n for n, since in silent_since_s.items() if now - since >= LEAVE_OUT_AFTER_S}
        if least is None or not gone or len(places) - len(gone) < least:
            return places
        names = ", ".join(place.node for place in places if place.node_id in gone)
        log.info("job %s continues without %s", job.record.job_id, names)
        return without(places, gone)

    async def _lease_in_turn(
        self, job: LocalJob, number: int, places: Sequence[Placement]
    ) -> list[_Granted]:
        """All, or up to the first refusal. By node id, so that of two jobs that want the same nodes
        one is refused at once instead of each holding what the other one needs.
        """
        asked: list[_Granted] = []
        for place in sorted(places, key=lambda place: place.node_id):
            asked.append(await self._lease(job, number, place))
            if asked[-1].grant is None or job.record.restart is None:
                break
        return sorted(asked, key=lambda one: one.placement.node_rank)

    async def _lease(self, job: LocalJob, number: int, place: Placement) -> _Granted:
        is_own = place.node_id == self._node.node_id
        request = LeaseRequest(
            job_id=job.record.job_id,
            attempt=number,
            ranks=place.nproc,
            gpus=place.gpus,
            interface=place.interface,
            hold_port=(job.record.spec.port or 0) if is_own else None,
        )
        if is_own:
            try:
                return _Granted(place, self._node.lease(request))
            except MntrainError as error:
                return _Granted(place, None, error.problem)
        answer = await self._peers.tell(place, "POST", Route.LEASES, msgspec.json.encode(request))
        if answer is None:
            return _Granted(place, None, _silent(place))
        if not answer.is_success:
            return _Granted(place, None, answer.problem)
        return _Granted(place, msgspec.json.decode(answer.body, type=LeaseGrant))

    def _request(self, job: LocalJob, number: int, asked: Sequence[_Granted]) -> StartRequest:
        record = job.record
        granted = [(one.placement, one.grant) for one in asked if one.grant is not None]
        placements = tuple(
            # An address may have changed while the node was away.
            msgspec.structs.replace(place, address=grant.address)
            for place, grant in granted
        )
        return StartRequest(
            job_id=record.job_id,
            spec=record.spec,
            attempt=Attempt(
                number=number,
                placements=placements,
                master_address=placements[0].address,
                master_port=granted[0][1].port or 0,
                submitted_s=job.now_s(),
            ),
            submitted_by=record.submitted_by,
        )

    async def _start(
        self, job: LocalJob, request: StartRequest, place: Placement
    ) -> Problem | None:
        """Why it did not start; ``None`` if it did."""
        path = Route.ATTEMPT.format(job_id=request.job_id, attempt=request.attempt.number)
        for _ in range(TRIES):
            body = msgspec.json.encode(_sent_now(job, request))
            answer = await self._peers.tell(place, "PUT", path, body)
            if answer is not None:
                return None if answer.is_success else answer.problem
        return _silent(place)

    async def _undo(self, request: StartRequest, place: Placement) -> None:
        number = request.attempt.number
        stop = StopRequest(reason="not every node could start", grace_s=0.0, attempt=number)
        path = Route.STOP.format(job_id=request.job_id)
        await self._peers.tell(place, "POST", path, msgspec.json.encode(stop))

    async def _release(self, job: LocalJob, number: int, asked: Sequence[_Granted]) -> None:
        """Give back what was promised; where nobody answers it ends by itself."""
        job_id = job.record.job_id
        self._node.leases.release_unstarted(job_id, number)
        path = Route.LEASE.format(job_id=job_id, attempt=number)
        await asyncio.gather(
            *(
                self._peers.tell(one.placement, "DELETE", path)
                for one in asked
                if one.placement.node_id != self._node.node_id
            )
        )


def _silent(place: Placement) -> Problem:
    return Problem(
        kind=Kind.SILENT,
        cause="does not answer",
        fix="'nodes' shows why; the job starts once the node is back",
        node=place.node,
    )


def _sent_now(job: LocalJob, request: StartRequest) -> StartRequest:
    return msgspec.structs.replace(request, sent_s=job.now_s())
