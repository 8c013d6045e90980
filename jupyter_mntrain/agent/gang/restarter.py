"""Restarter: starts the next attempt of a failed or waiting job, from the job's head.

A driver has deposited the job on every participant, so no driver is needed. While a node refuses or
does not answer, nothing is leased anywhere, and the record says what the job waits for.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

import msgspec

from jupyter_mntrain.agent.gang.moved_gpus import as_granted, as_it_is_now
from jupyter_mntrain.agent.gang.peer_client import Peers, silence
from jupyter_mntrain.agent.jobs.local_job import LocalJob
from jupyter_mntrain.agent.node import LocalNode
from jupyter_mntrain.launch.gang_start import GangMember, GangStart
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.api import LeaseGrant, LeaseRequest, StartRequest, StopRequest
from jupyter_mntrain.model.errors import JobNotFoundError, MntrainError, RefusedError
from jupyter_mntrain.model.failure.hypotheses import own
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId, NodeId
from jupyter_mntrain.model.lifecycle.events import Warned
from jupyter_mntrain.model.lifecycle.restarts import (
    LAST_BACKOFF_S,
    earlier_attempts,
    may_succeed,
    next_restart,
    waited_too_long,
    waiting,
    without,
)
from jupyter_mntrain.model.lifecycle.rollup import is_out, lost_part
from jupyter_mntrain.model.program import program_of
from jupyter_mntrain.model.records.job import Attempt, JobRecord, PartStatus, Placement, Restart
from jupyter_mntrain.model.records.plan import Plan
from jupyter_mntrain.plan.software.gpu_builds import refuse_leased_builds
from jupyter_mntrain.plan.software.versions import refuse_mixed_versions

log = logging.getLogger("mntrain.agent")


# Own node: the head's own part in a gang start, without HTTP.


class OwnNode:
    """Takes part in a gang start like a remote node, but calls this agent directly.

    Args:
        job: as it is before the attempt; nothing starts after a user has stopped it.
    """

    def __init__(self, node: LocalNode, job: LocalJob) -> None:
        self._node = node
        self._job = job
        self._after = "queue" if job.record.attempt.number == 0 else "failure"

    async def lease(self, request: LeaseRequest) -> LeaseGrant:
        refuse_if_stopped(self._job)
        return await self._node.lease_for(as_it_is_now(self._node, request))

    async def start(self, request: StartRequest) -> JobRecord:
        refuse_if_stopped(self._job)
        outcome = "failed"
        try:
            record = self._node.jobs.start(request).record
            outcome = "done"
        except MntrainError as error:
            outcome = f"refused: {error.cause}"
            raise
        finally:
            number = str(request.attempt.number)
            self._note("start", request.job_id, attempt=number, outcome=outcome)
        return record

    async def job(self, job_id: JobId) -> JobRecord:
        return self._node.jobs.get(job_id).record

    async def stop(self, job_id: JobId, request: StopRequest) -> JobRecord:
        self._note("stop", job_id)
        return self._node.jobs.stop(job_id, request)

    async def release(self, job_id: JobId, attempt: int) -> None:
        self._node.leases.release_unstarted(job_id, attempt)

    def _note(self, what: str, job_id: JobId, **about: str) -> None:
        """Write an audit log entry with the same caller that other participants record."""
        who = f"node {self._node.node_id}"
        self._node.audit.note(what, job=job_id, after=self._after, who=who, **about)


def refuse_if_stopped(job: LocalJob) -> None:
    """Refuse to start a job that a user has stopped.

    Raises:
        RefusedError: no further attempt may start.
    """
    if job.record.restart is None:
        raise RefusedError(f"job {job.record.job_id} was stopped", kind=Kind.OUT_OF_TURN)


RETRY_S = 2.0
"""Interval between tries to lease everything that an attempt needs."""

LEAVE_OUT_AFTER_S = tunables.seconds("restarts.leave_out_after_s")

TAKE_OVER_AFTER_S = 10.0
"""A head that is unreachable this long after the other parts have ended is replaced."""


class Restarter:
    """Starts further attempts of the jobs that this node leads as head.

    Args:
        peers: makes the clients of the other participants.
        renewed: a placement with its agent's addresses as they are now.
    """

    def __init__(
        self,
        node: LocalNode,
        peers: Peers,
        renewed: Callable[[Placement], Placement] = lambda place: place,
    ) -> None:
        self._node = node
        self._peers = peers
        self._renewed = renewed

    async def run(self, job: LocalJob, parts: Sequence[PartStatus]) -> LocalJob | None:
        """Start the next attempt; ``None`` if there is none or the job was stopped.

        Args:
            job: its attempt has ended.
            parts: how it ended, on each node that answered.
        """
        plan = job.record.restart or next_restart(job.record, parts, job.now_s())
        if plan is None:
            job.give_up()
            return None
        job.plan(plan)
        log.info("job %s: attempt %d is next", job.record.job_id, plan.number)
        # The clock may have changed with a reboot.
        await asyncio.sleep(min(max(0.0, plan.at_s - job.now_s()), LAST_BACKOFF_S))
        # A node that has lost its record refuses the next attempt: it is left out at once.
        silent_since_s = {part.node_id: -LEAVE_OUT_AFTER_S for part in parts if is_out(part)}
        while job.record.restart is not None:
            if await self._is_taken_over(job):
                job.give_up()
                break
            if (problem := waited_too_long(job.record, job.now_s())) is not None:
                await self._end_waiting(job, problem)
                break
            if restarted := await self._try(job, job.record.restart, silent_since_s):
                return restarted
            await self._leave_out_lost(job, silent_since_s)
            await asyncio.sleep(RETRY_S)
        return None

    async def _end_waiting(self, job: LocalJob, problem: Problem) -> None:
        """End a job that has waited too long, on this node and wherever it was deposited."""
        job_id, own_id = job.record.job_id, self._node.node_id
        log.info("job %s: %s", job_id, problem)
        if job.is_active:
            job.abort(problem)
        else:
            job.change(Warned(problem=problem))
        job.give_up()
        request = StopRequest(reason=problem.cause, grace_s=0.0)
        others = [one for one in job.record.attempt.placements if one.node_id != own_id]
        asked = (self._peers(place).stop(job_id, request) for place in others)
        await asyncio.gather(*asked, return_exceptions=True)

    async def _leave_out_lost(self, job: LocalJob, silent_since_s: dict[NodeId, float]) -> None:
        """Leave out participants that have lost the job's record, or give up. They would refuse
        every further attempt, as only a driver can deposit the job there again.
        """
        plan, own_id = job.record.restart, self._node.node_id
        waits_for = plan.waits_for if plan is not None else None
        if waits_for is None or waits_for.kind is not Kind.NOT_ALLOWED:
            return
        for place in job.record.attempt.placements:
            try:
                if place.node_id != own_id:
                    await self._peers(place).job(job.record.job_id)
            except JobNotFoundError:
                silent_since_s[place.node_id] = -LEAVE_OUT_AFTER_S
                if place not in self._places(job, silent_since_s):
                    continue
                problem = own(lost_part(place, job.record.part.state, job.now_s()))
                if problem is not None and job.is_active:
                    job.abort(problem)
                job.give_up()
            except MntrainError:
                continue

    async def succeed(self, job: LocalJob) -> LocalJob | None:
        """Like :meth:`run`, but in place of a lost head. Returns ``None`` if the head answers or
        another node has taken over.

        Args:
            job: its attempt has ended, and another node is its head.
        """
        head, own = job.record.attempt.head, job.placement.node_rank
        between = job.record.attempt.placements[1:own]
        heard_s = time.monotonic()
        silent_since_s = {head.node_id: heard_s - LEAVE_OUT_AFTER_S}
        while self._node.jobs.get(job.record.job_id) is job and not job.record.is_over:
            await asyncio.sleep(RETRY_S)
            known = await self._records_of(job, [head, *between])
            if known:
                # The head itself, or a participant of lower rank.
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
        """Plan the next attempt for a lost head. It skips a number, as the head may come back."""
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
        """Ask participants for the job's record, and omit those that do not answer."""
        asked = (self._peers(place).job(job.record.job_id) for place in places)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        return [answer for answer in answers if isinstance(answer, JobRecord)]

    async def _is_taken_over(self, job: LocalJob) -> bool:
        """Return whether another node became head and started a later attempt meanwhile."""
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
        """Try to start the attempt on all nodes. The job's record says what it waits for."""
        job_id, own = job.record.job_id, self._node.node_id
        places = self._places(job, silent_since_s)
        seats = [
            (place, OwnNode(self._node, job) if place.node_id == own else self._peers(place))
            for place in places
        ]
        gang = GangStart[GangMember](job_id, plan.number, job.record.spec, seats, is_repeated=True)

        def request(grants: Sequence[LeaseGrant]) -> StartRequest:
            refuse_if_stopped(job)
            given = as_granted(places, grants)
            _refuse_unfit(job, given, grants)
            return _request(job, plan.number, given, grants)

        try:
            if places[0].node_id != own:  # and too few are left without it
                raise silence(places[0].node)
            await gang.start(request, now=job.now_s, head_last=True)
            return self._node.jobs.get(job_id)
        except MntrainError as error:
            if job.record.restart is not None:
                # Nodes that had started this attempt have ended it: the next try is a new one.
                number = plan.number + gang.is_begun
                plan = msgspec.structs.replace(plan, number=number)
                job.plan(waiting(plan, error.problem, job.now_s()))
            return None
        finally:
            for place in gang.asked:
                if place.node_id in gang.silent:
                    silent_since_s.setdefault(place.node_id, time.monotonic())
                else:
                    silent_since_s.pop(place.node_id, None)

    def _places(self, job: LocalJob, silent_since_s: dict[NodeId, float]) -> tuple[Placement, ...]:
        """Return the next attempt's participants. A job that may shrink omits unreachable nodes."""
        places = tuple(map(self._renewed, job.record.attempt.placements))
        least = job.record.spec.min_nodes
        now = time.monotonic()
        gone = {n for n, since in silent_since_s.items() if now - since >= LEAVE_OUT_AFTER_S}
        if least is None or not gone or len(places) - len(gone) < least:
            return places
        names = ", ".join(place.node for place in places if place.node_id in gone)
        log.info("job %s continues without %s", job.record.job_id, names)
        return without(places, gone)


def _refuse_unfit(job: LocalJob, places: Sequence[Placement], grants: Sequence[LeaseGrant]) -> None:
    """Refuse nodes whose versions differ, whose torch cannot use their GPUs, or whose GPUs cannot
    run the recipe. A node may have been upgraded, or got other GPUs, while the job waited.
    """
    spec, given = job.record.spec, zip(places, grants, strict=True)
    known = [(place, grant.versions) for place, grant in given if grant.versions]
    if not spec.mixed_versions:
        refuse_mixed_versions([(place.node, versions) for place, versions in known])
    refuse_leased_builds([(place.node, versions, place.gpus) for place, versions in known])
    is_resumed = spec.origin is not None or job.record.attempt.number > 0
    program_of(spec).refuse_leased(places, grants, is_resumed=is_resumed)


def _request(
    job: LocalJob, number: int, placements: tuple[Placement, ...], grants: Sequence[LeaseGrant]
) -> StartRequest:
    return StartRequest(
        job_id=job.record.job_id,
        spec=job.record.spec,
        attempt=Attempt(
            number=number,
            placements=placements,
            master_address=placements[0].address,
            master_port=grants[0].port or 0,
            submitted_s=job.now_s(),
            earlier=earlier_attempts(job.record),
            plan=_plan_of(job.record.attempt, placements),
        ),
        submitted_by=job.record.submitted_by,
    )


def _plan_of(before: Attempt, placements: Sequence[Placement]) -> Plan | None:
    """Return an attempt's prediction if it also holds for another with as many nodes."""
    return before.plan if len(placements) == len(before.placements) else None
