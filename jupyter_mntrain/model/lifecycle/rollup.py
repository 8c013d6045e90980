"""Roll-up: merges the records of a job's participants into one view. Pure.

A job is done only when *every* part is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from jupyter_mntrain.model.failure.diagnosis import diagnose
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
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

WHOLE_SECOND_S = 1.0
"""torchelastic reports the time of a failure in whole seconds."""


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
    head = next((r for r in current if r.part.node_id == newest.attempt.head.node_id), None)
    if state == "failed" and newest.spec.max_restarts and not (head and head.is_over):
        state = "pending"  # the attempt has failed; the head says when the job has
    problem = blame(parts)
    return JobView(
        job_id=newest.job_id,
        spec=newest.spec,
        attempt=newest.attempt,
        state=state,
        parts=parts,
        problem=problem,
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


def part_to_blame(parts: Iterable[PartStatus]) -> PartStatus | None:
    """Return the part that failed first: causes before symptoms, then by time."""

    def order(part: PartStatus) -> tuple[bool, float]:
        problem: Problem | None = part.problem
        return (problem.is_symptom, problem.time_s or 0.0) if problem else (True, float("inf"))

    guilty = [part for part in parts if part.problem is not None]
    return min(guilty, key=order, default=None)


def blame(parts: Sequence[PartStatus]) -> Problem | None:
    """Return the problem to show first, with its node.

    If only lost connections are known, the cause is a rank that ended earlier, or a node that no
    longer answers.
    """
    guilty = part_to_blame(parts)
    if guilty is None or guilty.problem is None:
        return None
    if guilty.problem.is_symptom:
        return _ended_early(parts, guilty.problem) or _lost(parts, guilty.problem) or own(guilty)
    return own(guilty)


def own(part: PartStatus) -> Problem | None:
    """Return a part's problem with its node, by default the part's own."""
    if part.problem is None or part.problem.node:
        return part.problem
    return msgspec.structs.replace(part.problem, node=part.node)


def _ended_early(parts: Sequence[PartStatus], symptom: Problem) -> Problem | None:
    ended_s = (symptom.time_s or 0.0) + WHOLE_SECOND_S
    done = [
        (rank.done_s, part, rank)
        for part in parts
        for rank in part.ranks
        if rank.done_s is not None and rank.done_s < ended_s
    ]
    if not done:
        return None
    _, part, rank = min(done, key=lambda one: one[0])
    return Problem(
        kind=Kind.ENDED_EARLY,
        cause="ended normally while other ranks still needed it",
        fix="check why its loop ended before the others': it may have had fewer batches",
        node=part.node,
        rank=rank.rank,
        time_s=symptom.time_s,
    )


def _lost(parts: Sequence[PartStatus], symptom: Problem) -> Problem | None:
    silent = next((part.node for part in parts if part.state == "unknown"), None)
    if silent is None:
        return None
    return Problem(
        kind=Kind.NODE_LOST,
        cause="does not answer, and the other nodes lost their connection to it",
        fix="'nodes' shows why; with --restarts the job continues once the node is back",
        node=silent,
        time_s=symptom.time_s,
    )


def unknown_part(placement: Placement) -> PartStatus:
    """Make the part of a participant that does not answer: all of it is ``unknown``."""
    return PartStatus(
        node_id=placement.node_id,
        node=placement.node,
        state="unknown",
        ranks=tuple(RankStatus(rank=Rank(r), state="unknown") for r in placement.ranks),
    )
