"""Allocation's end: every part ends with the reason before the scheduler kills what is left.

A scheduler tells all processes of a step at once to end: this agent, keepers, torchrun and ranks.
Nobody but the agent can write why a part ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
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

log = logging.getLogger("mntrain.agent")

GRACE_S = tunables.seconds("allocation.rank_grace_s")
PATIENCE_S = tunables.seconds("allocation.end_patience_s")
WISH = "allocation"
WISHED = "saved, as its allocation is about to end"

LOOK_EVERY_S = tunables.seconds("allocation.end_interval_s")


async def save_within(notice_s: float, wish: Path, jobs: JobBook) -> None:
    """Have the jobs save and end, as :func:`save_if_wished` does on the node that leads them; wait
    for those that can, but leave the time that :func:`end_parts` may take.

    Args:
        notice_s: from now to the moment at which the scheduler kills what is left.
    """
    saving = [job for job in jobs.active() if job.record.part.saves]
    if not saving:
        return
    with suppress(OSError):  # a full disk: nothing can be saved on it either
        await asyncio.to_thread(wish.touch)
    save_if_wished(wish, jobs)
    with suppress(TimeoutError):
        await asyncio.wait_for(_all_ended(saving), max(0.0, notice_s - PATIENCE_S))


async def end_parts(jobs: JobBook, problem: Problem, *, is_canceled: bool) -> None:
    """End every part; return once all have ended, or their time is over. Jobs are still polled.

    Args:
        problem: why the allocation ends.
        is_canceled: a person ended it, so that its jobs have not failed.
    """
    ending = jobs.active()
    for job in ending:
        log.info("job %s: ending our part: %s", job.record.job_id, problem.cause)
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


def save_if_wished(wish: Path, jobs: JobBook) -> None:
    """Have the jobs that this node leads save a checkpoint and end, if the file ``wish`` is there.

    Only the head can, so that all ranks save the same step. Jobs that cannot save go on.
    """
    active = (job for job in jobs.active() if job.record.part.stop_reason is None)
    led = [job for job in active if job.placement.node_rank == 0]
    if not led or not wish.exists():
        return
    for job in led:
        attempt = job.record.attempt.number
        request = SaveRequest(key=f"{WISH}-{attempt}", attempt=attempt, is_last=True, reason=WISHED)
        with suppress(RefusedError, OSError):  # a script that cannot save; a full disk
            job.save_checkpoint(request)
            jobs.tell(job)


async def _all_ended(jobs: Collection[LocalJob]) -> None:
    while True:
        if not any(job.is_active for job in jobs):
            return
        await asyncio.sleep(LOOK_EVERY_S)
