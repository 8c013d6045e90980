"""Faults: how long it takes until a driver learns of one, and until the job continues."""

from __future__ import annotations

import msgspec

from jupyter_mntrain.cluster.acceptance.trial_jobs import TrialJobs
from jupyter_mntrain.cluster.job import Job
from jupyter_mntrain.metrics.acceptance.acceptance_report import FaultKind, InducedFault
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.job import TERMINAL, JobView


def last_place(view: JobView) -> tuple[str, int]:
    """Return the node and number of the last rank, which the faults hit."""
    place = view.attempt.placements[-1]
    return place.node, place.ranks[-1]


def rank_steps(view: JobView) -> list[int]:
    """Return the newest step of each rank."""
    return [rank.step or 0 for part in view.parts for rank in part.ranks]


def told(view: JobView) -> Problem | None:
    """Return the problem that a driver sees when an attempt fails or stalls."""
    waits = view.restart.waits_for if view.restart else None
    own = (part.problem for part in view.parts if part.problem is not None)
    return view.problem or view.stall or next(own, None) or waits


def watched(jobs: TrialJobs, job: Job, fault: InducedFault, attempt: int) -> InducedFault:
    """Watch an attempt from its failure until the next attempt makes new steps.

    Args:
        fault: says what was done, and where.
        attempt: that it was done to.
    """
    said: list[Problem] = []

    def is_told() -> bool:
        view = job.view()
        found = told(view) if view.attempt.number == attempt else None
        if found is not None:
            said.append(found)
        return bool(said) or view.attempt.number > attempt or view.state in TERMINAL

    begun = jobs.until(is_told, f"waiting to be told: {fault.kind}")
    if begun is None or not said:
        return msgspec.structs.replace(fault, detect_s=begun)

    def goes_on() -> bool:
        view = job.view()
        # Evidence of other nodes, which arrives later, may name another place.
        if view.attempt.number == attempt and (newer := told(view)) is not None:
            said.append(newer)
        if view.state in TERMINAL:
            return view.attempt.number > attempt
        before = view.resumed_step or 0
        return view.attempt.number > attempt and min(rank_steps(view), default=0) > before

    rest = jobs.until(goes_on, f"waiting for new steps: {fault.kind}")
    return msgspec.structs.replace(
        fault,
        detect_s=begun,
        recover_s=None if rest is None else begun + rest,
        said=said[-1],
    )


def begun_fault(job: Job, kind: FaultKind) -> InducedFault:
    """Return a record of a fault of the job's last rank, yet without its times."""
    node, rank = last_place(job.view())
    return InducedFault(kind=kind, node=node, rank=rank, job_id=job.id)
