"""Sweep: looks on every node for processes and leases that jobs have left behind."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from jupyter_mntrain.cluster.acceptance.programs import sweeping
from jupyter_mntrain.cluster.acceptance.trial_jobs import (
    CLEANUP_S,
    TrialJobs,
    program_spec,
)
from jupyter_mntrain.cluster.job import Job
from jupyter_mntrain.metrics.acceptance.acceptance_report import FoundProcess, Leftovers
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.job import JobSpec


class SweptProcess(Record, frozen=True):
    pid: int
    job_id: JobId
    name: str


class SweptNode(Record, frozen=True):
    """What the sweeping program reports of its node."""

    node: str
    found: tuple[SweptProcess, ...] = ()


def sweep(jobs: TrialJobs, like: JobSpec, kept: Sequence[JobId]) -> Leftovers:
    """Look for processes and leases that the jobs so far have left behind.

    Args:
        like: a job on the nodes to look at.
        kept: jobs that could not be deleted.
    """
    ids = jobs.ids
    try:
        job = jobs.launch(program_spec(sweeping, ids, like))
        jobs.ended(job, "looking for what is left")
    except MntrainError as error:
        return Leftovers(problem=error.problem, kept=tuple(kept))
    told = _told(job)
    jobs.until(lambda: not jobs.leases(of=ids), "counting leases", CLEANUP_S)
    return Leftovers(
        looked_on=tuple(one.node for one in told),
        processes=tuple(
            FoundProcess(node=one.node, pid=each.pid, job_id=each.job_id, name=each.name)
            for one in told
            for each in one.found
        ),
        leases=jobs.leases(of=ids),
        kept=tuple(kept),
    )


def _told(job: Job) -> list[SweptNode]:
    lines = (line.text for piece in job.whole_log() for line in piece)
    parts = (text.partition(sweeping.MARK) for text in lines)
    return [msgspec.json.decode(said, type=SweptNode) for _, mark, said in parts if mark]
