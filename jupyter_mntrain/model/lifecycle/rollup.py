"""Roll-up: merges the records of a job's participants into one view. Pure.

A job is done only when *every* part is.
"""

from __future__ import annotations

from collections.abc import Iterable

from jupyter_mntrain.model.failure.diagnosis import diagnose
from jupyter_mntrain.model.failure.judge import judge
from jupyter_mntrain.model.failure.warnings import job_warnings
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.job import (
    TERMINAL,
    JobRecord,
    JobState,
    JobView,
    PartStatus,
    Placement,
    RankStatus,
)


def roll_up(records: Iterable[JobRecord]) -> JobView:
    """Merge the records of one job. Participants that did not answer become ``unknown`` parts.

    Args:
        records: at least one; parts of older attempts are ignored.
    """
    known = list(records)
    newest = max(known, key=lambda record: record.attempt.number)
    current = [r for r in known if r.attempt.number == newest.attempt.number]
    by_node = {record.part.node_id: record.part for record in current}
    parts = tuple(
        by_node.get(placement.node_id) or unknown_part(placement)
        for placement in newest.attempt.placements
    )
    state = job_state(part.state for part in parts)
    verdict = judge(parts)
    if state == "failed" and verdict is not None and verdict.is_waiting:
        state = "stopping"  # in a few seconds its agents will have tried the links
    head = next((r for r in current if r.part.node_id == newest.attempt.head.node_id), None)
    if state == "failed" and newest.spec.max_restarts and not (head and head.is_over):
        state = "pending"  # the attempt has failed; the head says when the job has
    problem = verdict.problem if verdict else None
    return JobView(
        job_id=newest.job_id,
        spec=newest.spec,
        attempt=newest.attempt,
        state=state,
        parts=parts,
        problem=problem,
        verdict=verdict,
        submitted_by=newest.submitted_by,
        stall=diagnose(parts),
        restart=head.restart if head and state == "pending" else None,
        warnings=job_warnings(parts, newest.attempt.world_size, problem),
    )


def job_state(parts: Iterable[JobState]) -> JobState:
    """Derive a job's state from its parts' states."""
    states = set(parts)
    if states and states <= TERMINAL:
        return next(s for s in ("failed", "canceled", "succeeded") if s in states)
    if states & {"failed", "canceled", "stopping"}:
        return "stopping"
    going: tuple[JobState, ...] = ("pending", "starting", "running")
    return next((state for state in going if state in states), "unknown")


def unknown_part(placement: Placement) -> PartStatus:
    """Make the part of a participant that does not answer: all of it is ``unknown``."""
    return PartStatus(
        node_id=placement.node_id,
        node=placement.node,
        state="unknown",
        ranks=tuple(RankStatus(rank=Rank(r), state="unknown") for r in placement.ranks),
    )
