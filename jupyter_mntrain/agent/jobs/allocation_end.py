"""Allocation's end: ends every part with the reason, before the scheduler kills what is left.

A scheduler tells all processes of a step at once to end: this agent, supervisors, torchrun and
ranks. Nobody but the agent can write why a part ended.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

import msgspec

from jupyter_mntrain.agent.jobs.book import JobBook
from jupyter_mntrain.agent.jobs.local_job import LocalJob
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.api import SaveRequest
from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.lifecycle.events import Exited
from jupyter_mntrain.model.lifecycle.restarts import as_granted, in_next_grant, is_in_next_grant
from jupyter_mntrain.model.sources.slots import AGAIN

log = logging.getLogger("mntrain.agent")

GRACE_S = tunables.seconds("allocation.rank_grace_s")
PATIENCE_S = tunables.seconds("allocation.end_patience_s")
WISH = "allocation"
WISHED = "saved, as its allocation is about to end"

FIRST_JOB_S = tunables.seconds("allocation.first_job_s")

LOOK_EVERY_S = 0.1
"""Interval of looking whether they have ended."""


async def save_within(notice_s: float, wish: Path, jobs: JobBook) -> None:
    """Have jobs save and end, as :func:`save_if_wished` does on the node that leads them. Wait for
    those that can, but leave the time that :func:`end_parts` may take.

    Args:
        notice_s: from now to the moment at which the scheduler kills what is left.
    """
    # What a person has stopped ends by itself; another agent may have asked for the save before.
    was_wished = await asyncio.to_thread(wish.exists)
    parts = [(job, job.record.part) for job in jobs.active()]
    running = [(job, part) for job, part in parts if part.saves and part.state == "running"]
    saving = [job for job, part in running if was_wished or part.stop_reason is None]
    if not saving:
        return
    with suppress(OSError):  # a full disk: nothing can be saved on it either
        await asyncio.to_thread(wish.touch)
    save_if_wished(wish, jobs)
    for job in saving:  # this agent starts again with the next grant, and so do they
        go_on_in_next_grant(job)
        jobs.tell(job)
    with suppress(TimeoutError):
        await asyncio.wait_for(_all_ended(saving), max(0.0, notice_s - PATIENCE_S))


async def end_parts(
    jobs: JobBook,
    problem: Problem,
    *,
    is_canceled: bool,
    go_on: Collection[LocalJob] | None = None,
) -> None:
    """End every part. Returns once all have ended or the time is up; jobs are polled meanwhile.

    Args:
        problem: why the allocation ends.
        is_canceled: a person ended it, so that its jobs have not failed.
        go_on: jobs that go on once its nodes, or others, are granted again, also those whose ranks
            have ended meanwhile: schedulers tell them, too. ``None``: nothing is granted again.
    """
    for job in go_on or ():
        go_on_in_next_grant(job)
    ending = jobs.active()
    for job in ending:
        log.info("job %s: ending our part: %s", job.record.job_id, problem.cause)
        if go_on is None:
            job.give_up()  # who continues the run asks for other nodes
        if is_canceled:
            job.stop(problem.cause, GRACE_S)
        else:
            job.abort(msgspec.structs.replace(problem, time_s=job.now_s()), GRACE_S)
        jobs.tell(job)
    with suppress(TimeoutError):
        await asyncio.wait_for(_all_ended(ending), PATIENCE_S)
    for job in ending:
        job.change(Exited(time_s=job.now_s(), exit_code=None))
        jobs.tell(job)


def save_if_wished(wish: Path, jobs: JobBook) -> bool:
    """Have the jobs that this node leads save a checkpoint and end, if the file ``wish`` exists.

    Only the head can, so that all ranks save the same step. Jobs that cannot save go on.

    Returns:
        Whether it is there, and no job is left to wait for.
    """
    if not wish.exists():
        return False
    active = (job for job in jobs.active() if job.record.part.stop_reason is None)
    led = [job for job in active if job.placement.node_rank == 0]
    for job in led:
        attempt = job.record.attempt.number
        request = SaveRequest(key=f"{WISH}-{attempt}", attempt=attempt, is_last=True, reason=WISHED)
        with suppress(RefusedError, OSError):  # a script that cannot save; a full disk
            job.save_checkpoint(request)
            if _comes_back(wish):
                go_on_in_next_grant(job)
                wish.with_name(AGAIN).touch()
            jobs.tell(job)
    return not jobs.active()


def go_on_in_next_grant(job: LocalJob) -> None:
    """Record, on the head, that another attempt follows once nodes are granted again."""
    if job.placement.node_rank == 0:
        job.update(restart=in_next_grant(job.record, job.now_s()), is_over=False)


def go_on_as_granted(job: LocalJob) -> None:
    """Start an attempt that waited until this node's allocation was granted again.

    One whose end was not written, as its processes were killed, is found to have ended first.
    """
    if job.record.is_over:
        return
    plan = job.record.restart
    if plan is not None and is_in_next_grant(plan):
        plan = as_granted(plan, job.now_s())
    job.update(restart=plan, was_queued=True)


def _comes_back(wish: Path) -> bool:
    """Return whether the allocation is queued again once its jobs have saved."""
    return wish.read_text().strip() == AGAIN


class Idleness:
    """Tells whether an allocation has been without a job for so long that it should end.

    Its agents agree by the time of a file: each that has a job, or a lease for one, renews it.

    Args:
        mark: the file, in the allocation's directory.
        limit_s: how long.
        first_s: how long at least before the first job: its files may be on their way.
        clock: Unix time.
    """

    def __init__(
        self,
        mark: Path,
        jobs: JobBook,
        limit_s: float,
        first_s: float = FIRST_JOB_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._mark = mark
        self._jobs = jobs
        self._limit_s = limit_s
        self._first_s = first_s
        self._clock = clock
        self._begun_s = clock()

    def is_over(self) -> bool:
        """Check, and renew the file if this node is in use."""
        if self._is_used():
            self._mark.touch()
            return False
        used_s = self._used_s()
        if used_s < self._begun_s:
            return self._clock() - self._begun_s > max(self._limit_s, self._first_s)
        return self._clock() - used_s > self._limit_s

    def _is_used(self) -> bool:
        is_to_restart = any(job.record.restart is not None for job in self._jobs.all())
        return bool(self._jobs.active() or self._jobs.leases.all()) or is_to_restart

    def _used_s(self) -> float:
        with suppress(OSError):
            return self._mark.stat().st_mtime
        return 0.0


async def _all_ended(jobs: Collection[LocalJob]) -> None:
    while True:
        if not any(job.is_active for job in jobs):
            return
        await asyncio.sleep(LOOK_EVERY_S)
