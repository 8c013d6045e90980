"""Roll-up: merges the records of a job's participants into one view. Pure.

A job is done only when *every* part is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.failure.diagnosis import diagnose
from jupyter_mntrain.model.failure.fixes import fix_of
from jupyter_mntrain.model.failure.judge import judge
from jupyter_mntrain.model.failure.kinds import TAKEN, Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.failure.warnings import job_episodes, job_warnings
from jupyter_mntrain.model.ids import NodeId, Rank
from jupyter_mntrain.model.records.job import (
    TERMINAL,
    JobRecord,
    JobState,
    JobView,
    PartStatus,
    Placement,
    RankStatus,
)

START_PATIENCE_S = tunables.seconds("launch.start_patience_s")


def roll_up(
    records: Iterable[JobRecord],
    absent: Collection[NodeId] = (),
    taken: Mapping[NodeId, Problem] = {},
) -> JobView:
    """Merge the records of one job. Participants that did not answer become ``unknown`` parts.

    Args:
        records: at least one; parts of older attempts are ignored.
        absent: participants that answer and have lost their record of the job. Their parts have
            failed, or ended as all others did: an ended job keeps its state.
        taken: silent participants whose nodes a scheduler has taken back, each with why.
    """
    known = list(records)
    newest = max(known, key=lambda record: record.attempt.number)
    current = [r for r in known if r.attempt.number == newest.attempt.number]
    by_node = {record.part.node_id: record.part for record in current}
    ended = job_state(part.state for part in by_node.values() if part.state != "unknown")
    by_node |= {
        place.node_id: taken_part(place, taken[place.node_id])
        for place in newest.attempt.placements
        if place.node_id in taken and not _has_ended(by_node.get(place.node_id))
    }
    parts = tuple(
        by_node.get(place.node_id)
        or (lost_part(place, ended) if place.node_id in absent else unknown_part(place))
        for place in newest.attempt.placements
    )
    state = job_state(part.state for part in parts)
    verdict = judge(parts)
    if state == "failed" and verdict is not None and verdict.is_waiting:
        state = "stopping"  # in a few seconds its agents will have tried the links
    head = next((r for r in current if r.part.node_id == newest.attempt.head.node_id), None)
    is_led = newest.attempt.head.node_id not in absent or newest.spec.min_nodes is not None
    if state == "failed" and newest.spec.max_restarts and is_led and not (head and head.is_over):
        state = "pending"  # the attempt has failed; the head says when the job has
    if state in TERMINAL and head is not None and head.restart is not None:
        state = "pending"  # its nodes were taken, and will be granted again
    problem = verdict.problem if verdict else None
    label = max((record.label for record in known), key=lambda one: one.time_s)
    lines = {one.part.node_id: one.loss_line for one in current if one.loss_line}
    nodes = (place.node_id for place in newest.attempt.placements)
    return JobView(
        job_id=newest.job_id,
        spec=msgspec.structs.replace(newest.spec, name=label.name or newest.spec.name),
        attempt=newest.attempt,
        state=state,
        parts=parts,
        problem=problem,
        verdict=verdict,
        submitted_by=newest.submitted_by,
        stall=diagnose(parts),
        restart=head.restart if head and state == "pending" else None,
        warnings=job_warnings(parts, newest.attempt.world_size, problem),
        episodes=job_episodes(parts),
        label=label,
        loss_line=next((lines[node] for node in nodes if node in lines), None),
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


def lost_part(placement: Placement, others: JobState, time_s: float | None = None) -> PartStatus:
    """Make the part of a participant that answers but has no record of the job.

    Args:
        others: what the known parts amount to.
        time_s: when that was noticed.
    """
    problem = Problem(
        kind=Kind.NO_RECORD,
        cause="has no record of the job: its state directory was replaced or emptied",
        fix=fix_of(Kind.NO_RECORD),
        time_s=time_s,
    )
    is_over = others in TERMINAL
    return _part_in(
        placement, others if is_over else "failed", problem=None if is_over else problem
    )


def has_lost_record(part: PartStatus) -> bool:
    """Whether this part's own node has no record of the job."""
    problem = part.problem
    return problem is not None and problem.kind is Kind.NO_RECORD and problem.node is None


def taken_part(placement: Placement, problem: Problem, time_s: float | None = None) -> PartStatus:
    """Make the part of a silent participant whose node a scheduler has taken back.

    Args:
        problem: why, as the source of the nodes says.
        time_s: when that was noticed.
    """
    kind = problem.kind if problem.kind in TAKEN else Kind.NODES_TAKEN
    told = msgspec.structs.replace(problem, kind=kind, node=None, time_s=time_s)
    return _part_in(placement, "failed", problem=told)


def is_out(part: PartStatus) -> bool:
    """Whether this part's node is out of the job without saying so: it has lost its record, or was
    taken back before it could write one.
    """
    problem = part.problem
    is_taken = problem is not None and problem.kind in TAKEN and part.ended_s is None
    return has_lost_record(part) or is_taken


def _has_ended(part: PartStatus | None) -> bool:
    return part is not None and part.state in TERMINAL


def unknown_part(placement: Placement) -> PartStatus:
    """Make the part of a participant that does not answer: everything is ``unknown``."""
    return _part_in(placement, "unknown")


def _part_in(
    placement: Placement, state: JobState, *, problem: Problem | None = None
) -> PartStatus:
    return PartStatus(
        node_id=placement.node_id,
        node=placement.node,
        state=state,
        ranks=tuple(RankStatus(rank=Rank(r), state=state) for r in placement.ranks),
        problem=problem,
    )
