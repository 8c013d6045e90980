"""Roll-up: one job from the records of its participants. Pure.

A job is done only when *every* part is: one finished rank proves nothing about the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jupyter_mntrain.model.failure.diagnosis import diagnose
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.job import (
    TERMINAL,
    Cause,
    JobRecord,
    JobState,
    JobView,
    PartStatus,
    Placement,
    RankStatus,
)

WHOLE_SECOND_S = 1.0
"""torchelastic tells when a rank failed without its fraction."""


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
    cause, node = blame(parts)
    state = job_state(part.state for part in parts)
    head = next((r for r in current if r.part.node_id == newest.attempt.head.node_id), None)
    if state == "failed" and newest.spec.max_restarts and not (head and head.is_over):
        state = "pending"  # an attempt has failed; the head says when the job has, for good
    return JobView(
        job_id=newest.job_id,
        spec=newest.spec,
        attempt=newest.attempt,
        state=state,
        parts=parts,
        cause=cause,
        cause_node=node,
        submitted_by=newest.submitted_by,
        stall=diagnose(parts),
        restart=head.restart if head and state == "pending" else None,
    )


def job_state(parts: Iterable[JobState]) -> JobState:
    """The job's state from its parts' states."""
    states = set(parts)
    if states and states <= TERMINAL:
        return next(s for s in ("failed", "canceled", "succeeded") if s in states)
    if states & {"failed", "canceled", "stopping"}:
        return "stopping"
    open_states = states - TERMINAL
    if open_states == {"unknown"}:
        return "unknown"
    for state in ("pending", "starting", "running"):
        if state in open_states:
            return state
    return "unknown"


def first_cause(parts: Iterable[PartStatus]) -> PartStatus | None:
    """The part to blame: causes before symptoms, then the earliest."""

    def order(part: PartStatus) -> tuple[bool, float]:
        cause: Cause | None = part.cause
        return (cause.is_symptom, cause.time_s) if cause else (True, float("inf"))

    guilty = [part for part in parts if part.cause is not None]
    return min(guilty, key=order, default=None)


def blame(parts: Sequence[PartStatus]) -> tuple[Cause | None, str | None]:
    """What a person should read first, and the node it is about.

    Where all that is known are closed connections, whom they lost is a rank that was done before,
    or a node that does not answer any more.
    """
    guilty = first_cause(parts)
    if guilty is None or guilty.cause is None:
        return None, None
    if guilty.cause.is_symptom:
        done = [
            (rank.done_s, part, rank)
            for part in parts
            for rank in part.ranks
            if rank.done_s is not None and rank.done_s < guilty.cause.time_s + WHOLE_SECOND_S
        ]
        if done:
            _, part, rank = min(done, key=lambda one: one[0])
            summary = f"rank {rank.rank} exited successfully while other ranks still needed it"
            fix = "check why its loop ended before the others', for example fewer batches"
            cause = Cause(summary=summary, time_s=guilty.cause.time_s, rank=rank.rank, fix=fix)
            return cause, part.node
        silent = next((part.node for part in parts if part.state == "unknown"), None)
        if silent is not None:
            summary = f"{silent} does not answer, and the other nodes lost their connection to it"
            fix = "see 'nodes' for the reason; with --restarts the job continues once it is back"
            return Cause(summary=summary, time_s=guilty.cause.time_s, fix=fix), silent
    return guilty.cause, blamed_node(guilty)


def blamed_node(part: PartStatus) -> str:
    """The node that a part's cause is about: as a rule its own."""
    return (part.cause.node if part.cause else None) or part.node


def unknown_part(placement: Placement) -> PartStatus:
    """What is known of a participant that does not answer: nothing, and that is said."""
    return PartStatus(
        node_id=placement.node_id,
        node=placement.node,
        state="unknown",
        ranks=tuple(RankStatus(rank=Rank(r), state="unknown") for r in placement.ranks),
    )
