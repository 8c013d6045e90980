"""State transitions of one node's part of an attempt: ``apply(part, event) -> part``. Pure.

    pending → starting → running → stopping → succeeded | failed | canceled

Terminal states are final: a late or repeated event changes nothing.
"""

from __future__ import annotations

import msgspec

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import NodeId, Rank
from jupyter_mntrain.model.records.evidence import Evidence, LinkTry
from jupyter_mntrain.model.records.job import (
    TERMINAL,
    JobState,
    Leftover,
    PartStatus,
    RankStatus,
    Stall,
)


class Launched(Record, frozen=True, tag=True):
    """The keeper runs, and torchrun is starting."""

    time_s: float


class RankUp(Record, frozen=True, tag=True):
    """A rank's process was seen, or it wrote its first line."""

    rank: Rank
    pid: int
    saves: bool = False


class RankStepped(Record, frozen=True, tag=True):
    rank: Rank
    step: int


class RankDone(Record, frozen=True, tag=True):
    """A rank reports that it has finished. Its process may still exist."""

    rank: Rank
    time_s: float


class RankJoined(Record, frozen=True, tag=True):
    """A rank has joined a process group of ``size`` ranks; see :class:`RankStatus`."""

    rank: Rank
    size: int


class Warned(Record, frozen=True, tag=True):
    """Something makes the numbers of a rank doubtful."""

    problem: Problem


class WarningOver(Record, frozen=True, tag=True):
    """A warning about a rank no longer holds."""

    kind: Kind
    rank: Rank


class SavedEvent(Record, frozen=True, tag=True):
    """A checkpoint of ``step`` steps is complete."""

    step: int


class RankDown(Record, frozen=True, tag=True):
    """A rank has ended; ``exit_code`` is negative for a signal.

    Known also of ranks of a part that is being stopped: they may be the cause.
    """

    rank: Rank
    exit_code: int
    problem: Problem | None = None
    time_s: float | None = None


class RankGone(Record, frozen=True, tag=True):
    """A rank's process was missed for the first time."""

    rank: Rank
    time_s: float


class StopAsked(Record, frozen=True, tag=True):
    """A stop was requested by a person, or by the head because another node failed.

    With a ``problem``, the head aborts the attempt, for example after a stall: it has failed.
    """

    reason: str
    problem: Problem | None = None
    time_s: float | None = None
    after_failure: bool = False


class EndWished(Record, frozen=True, tag=True):
    """A stop after one more checkpoint was requested; the ranks do that themselves."""

    reason: str


class Stalled(Record, frozen=True, tag=True):
    """No rank has made progress for too long."""

    stall: Stall


class EvidenceGathered(Record, frozen=True, tag=True):
    """This node has gathered evidence, at a stall or after its part's end."""

    evidence: Evidence


class LinksTried(Record, frozen=True, tag=True):
    """The links to the other participants were tried: more of the evidence."""

    links: tuple[LinkTry, ...]


class Resumed(Record, frozen=True, tag=True):
    """A rank made progress again after a stall."""


class Exited(Record, frozen=True, tag=True):
    """The keeper has ended; ``leftovers`` names processes of the part that did not."""

    time_s: float
    exit_code: int | None
    problem: Problem | None = None
    leftovers: tuple[Leftover, ...] = ()


PartEvent = (
    Launched
    | RankUp
    | RankStepped
    | SavedEvent
    | RankDown
    | RankDone
    | RankJoined
    | Warned
    | WarningOver
    | RankGone
    | StopAsked
    | EndWished
    | Stalled
    | EvidenceGathered
    | LinksTried
    | Resumed
    | Exited
)

UNDER_WAY: tuple[JobState, ...] = ("unknown", "pending", "starting", "running", "stopping")
"""The states that are not terminal, in their order."""


def new_part(node_id: NodeId, node: str, ranks: range) -> PartStatus:
    """Make a part that has not started, with a pending status for each rank of this node."""
    statuses = tuple(RankStatus(rank=Rank(r), state="pending") for r in ranks)
    return PartStatus(node_id=node_id, node=node, state="pending", ranks=statuses)


def apply(part: PartStatus, event: PartEvent) -> PartStatus:
    """Return the part after ``event``; the same object if nothing changes."""
    match event:
        case EvidenceGathered(evidence=evidence):
            return _changed(part, evidence=evidence)
        case LinksTried(links=links):
            tried = part.evidence and msgspec.structs.replace(part.evidence, links=links)
            return _changed(part, evidence=tried)
    return part if part.state in TERMINAL else _apply_to_active(part, event)


def _apply_to_active(part: PartStatus, event: PartEvent) -> PartStatus:
    match event:
        case Launched(time_s=time_s):
            # Once, even if the event arrives after those of the ranks.
            started_s = time_s if part.started_s is None else part.started_s
            return _advance(_changed(part, started_s=started_s), "starting")
        case RankUp() | RankStepped() | RankDown() | RankDone() | RankGone() | RankJoined():
            return _apply_to_rank(part, event)
        case Warned() | WarningOver():
            return _changed(part, warnings=_warnings_after(part, event))
        case SavedEvent(step=step):
            return _changed(part, saved_step=max(step, part.saved_step or 0))
        case StopAsked():
            return _stop(part, event)
        case EndWished(reason=reason):
            return _changed(part, stop_reason=part.stop_reason or reason)
        case Stalled(stall=stall):
            return part if part.state == "stopping" else _changed(part, stall=stall)
        case Resumed():
            return _changed(part, stall=None, evidence=None)
        case Exited():
            return _end(part, event)
    return part


def _apply_to_rank(
    part: PartStatus,
    event: RankUp | RankStepped | RankDown | RankDone | RankGone | RankJoined,
) -> PartStatus:
    match event:
        case RankJoined(rank=rank, size=size):
            return _set_rank(part, rank, group_size=size)
        case RankGone(rank=rank, time_s=time_s):
            return _set_rank(part, rank, ended_s=time_s)
        case RankDone(rank=rank, time_s=time_s):
            return _set_rank(part, rank, done_s=time_s)
        case RankUp(rank=rank, pid=pid, saves=saves):
            part = _changed(part, saves=part.saves or saves)
            return _running_when_all_are(_set_rank(part, rank, state="running", pid=pid))
        case RankStepped(rank=rank, step=step):
            return _running_when_all_are(_stepped(part, rank, step))
        case RankDown(rank=rank, exit_code=code, problem=problem, time_s=time_s):
            bad: JobState = "canceled" if part.state == "stopping" else "failed"
            ended: JobState = "succeeded" if code == 0 else bad
            done = {"done_s": time_s} if code == 0 and time_s is not None else {}
            return _set_rank(part, rank, state=ended, exit_code=code, problem=problem, **done)


def _warnings_after(part: PartStatus, event: Warned | WarningOver) -> tuple[Problem, ...]:
    """Keep the first of each kind: the others repeat it, of another rank or a later step."""
    match event:
        case Warned(problem=problem):
            known = any(one.kind is problem.kind for one in part.warnings)
            return part.warnings if known else (*part.warnings, problem)
        case WarningOver(kind=kind, rank=rank):
            return tuple(one for one in part.warnings if (one.kind, one.rank) != (kind, rank))


def _changed(part: PartStatus, **changes: object) -> PartStatus:
    """Replace fields; return the same object if nothing changes."""
    new = msgspec.structs.replace(part, **changes)
    return part if new == part else new


def _advance(part: PartStatus, state: JobState, **changes: object) -> PartStatus:
    """Move to a later state; never back."""
    if UNDER_WAY.index(state) <= UNDER_WAY.index(part.state):
        return part
    return msgspec.structs.replace(part, state=state, **changes)


def _stop(part: PartStatus, event: StopAsked) -> PartStatus:
    """Keep the first reason; but an attempt that a person stops has not failed."""
    if part.state != "stopping":
        return _advance(
            part,
            "stopping",
            stop_reason=event.reason,
            problem=event.problem,
            stopped_s=event.time_s,
            stopped_after_failure=event.after_failure,
        )
    if part.problem is not None and event.problem is None:
        return _changed(part, stop_reason=event.reason, problem=None)
    return part


def _stepped(part: PartStatus, rank: Rank, step: int) -> PartStatus:
    """Update a rank's step; never back."""
    before = next((status.step for status in part.ranks if status.rank == rank), None)
    return _set_rank(part, rank, state="running", step=max(step, before or 0))


def _set_rank(part: PartStatus, rank: Rank, **changes: object) -> PartStatus:
    def change(status: RankStatus) -> RankStatus:
        if status.rank != rank or status.state in TERMINAL:
            return status
        return msgspec.structs.replace(status, **changes)

    ranks = tuple(change(status) for status in part.ranks)
    return part if ranks == part.ranks else msgspec.structs.replace(part, ranks=ranks)


def _running_when_all_are(part: PartStatus) -> PartStatus:
    # A rank may already have ended before the last one came up.
    if all(status.state not in ("pending", "starting", "unknown") for status in part.ranks):
        return _advance(part, "running")
    return part


def _end(part: PartStatus, event: Exited) -> PartStatus:
    problem = event.problem
    if part.state == "stopping":
        problem = part.problem
        state: JobState = "canceled" if problem is None else "failed"
    else:
        has_failed = any(status.state == "failed" for status in part.ranks)
        ended_well: JobState = "canceled" if part.stop_reason else "succeeded"
        state = ended_well if event.exit_code == 0 and not has_failed else "failed"
    ranks = tuple(
        status
        if status.state in TERMINAL
        # The end of this rank was not seen: if its part failed, it was canceled, not the cause.
        else msgspec.structs.replace(status, state="canceled" if state == "failed" else state)
        for status in part.ranks
    )
    return msgspec.structs.replace(
        part,
        state=state,
        ranks=ranks,
        exit_code=event.exit_code,
        ended_s=event.time_s,
        # Only failures have a problem: errors that ranks print while being stopped are noise.
        problem=problem if state == "failed" else None,
        leftovers=event.leftovers,
    )
