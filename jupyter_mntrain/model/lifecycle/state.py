"""State transitions of one node's part of an attempt: ``apply(part, event) -> part``. Pure.

    pending → starting → running → stopping → succeeded | failed | canceled

Terminal states absorb: a late or repeated event changes nothing.
"""

from __future__ import annotations

import msgspec

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import NodeId, Rank
from jupyter_mntrain.model.records.job import (
    TERMINAL,
    JobState,
    Leftover,
    LinkTry,
    PartStatus,
    RankStatus,
    Stall,
)


class Launched(Record, frozen=True, tag=True):
    """The keeper runs; torchrun is on its way."""

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
    """A rank says that it has done all it was to do. Its process may still be there."""

    rank: Rank
    time_s: float


class SavedEvent(Record, frozen=True, tag=True):
    """A checkpoint of ``step`` steps is whole."""

    step: int


class RankDown(Record, frozen=True, tag=True):
    """A rank is known to have ended; ``exit_code`` is negative for a signal."""

    rank: Rank
    exit_code: int
    problem: Problem | None = None


class StopAsked(Record, frozen=True, tag=True):
    """Somebody asked for an end: a person, or the head because another node failed.

    With a ``problem`` it is the head that gives up an attempt, as one that stalled: it has failed.
    """

    reason: str
    problem: Problem | None = None


class EndWished(Record, frozen=True, tag=True):
    """Somebody asked for an end after one more checkpoint; the ranks see to that themselves."""

    reason: str


class Stalled(Record, frozen=True, tag=True):
    """Nothing has got on for too long."""

    stall: Stall


class LinksTried(Record, frozen=True, tag=True):
    """The links of a part that stalled were tried."""

    links: tuple[LinkTry, ...]


class Resumed(Record, frozen=True, tag=True):
    """Something got on again."""


class Exited(Record, frozen=True, tag=True):
    """The keeper is gone and no process of the part is left, or the left ones are named."""

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
    | StopAsked
    | EndWished
    | Stalled
    | LinksTried
    | Resumed
    | Exited
)

_ORDER: dict[JobState, int] = {
    "unknown": 0,
    "pending": 0,
    "starting": 1,
    "running": 2,
    "stopping": 3,
}


def new_part(node_id: NodeId, node: str, ranks: range) -> PartStatus:
    """A part nobody has started yet, with one pending status per rank of this node."""
    statuses = tuple(RankStatus(rank=Rank(r), state="pending") for r in ranks)
    return PartStatus(node_id=node_id, node=node, state="pending", ranks=statuses)


def apply(part: PartStatus, event: PartEvent) -> PartStatus:
    """The part after ``event``; the same object when nothing changes."""
    if part.state in TERMINAL:
        return part
    match event:
        case Launched(time_s=time_s):
            return _advance(_started(part, time_s), "starting")
        case RankUp() | RankStepped() | RankDown() | RankDone():
            return _apply_to_rank(part, event)
        case SavedEvent(step=step):
            return _changed(part, saved_step=max(step, part.saved_step or 0))
        case StopAsked():
            return _stop(part, event)
        case EndWished(reason=reason):
            return _changed(part, stop_reason=part.stop_reason or reason)
        case Stalled() | LinksTried() | Resumed():
            return _changed(part, stall=_stall_after(part, event))
        case Exited():
            return _end(part, event)


def _apply_to_rank(
    part: PartStatus, event: RankUp | RankStepped | RankDown | RankDone
) -> PartStatus:
    match event:
        case RankDone(rank=rank, time_s=time_s):
            return _set_rank(part, rank, done_s=time_s)
        case RankUp(rank=rank, pid=pid, saves=saves):
            part = _changed(part, saves=part.saves or saves)
            return _running_when_all_are(_set_rank(part, rank, state="running", pid=pid))
        case RankStepped(rank=rank, step=step):
            return _running_when_all_are(_stepped(part, rank, step))
        case RankDown(rank=rank, exit_code=code, problem=problem):
            bad: JobState = "canceled" if part.state == "stopping" else "failed"
            ended: JobState = "succeeded" if code == 0 else bad
            return _set_rank(part, rank, state=ended, exit_code=code, problem=problem)


def _stall_after(part: PartStatus, event: Stalled | LinksTried | Resumed) -> Stall | None:
    match event:
        case Stalled(stall=stall):
            if part.state == "stopping":
                return part.stall
            known = part.stall.links if part.stall else None
            return msgspec.structs.replace(stall, links=known)
        case LinksTried(links=links):
            return part.stall and msgspec.structs.replace(part.stall, links=links)
        case Resumed():
            return None


def _changed(part: PartStatus, **changes: object) -> PartStatus:
    """The same object when nothing is different."""
    new = msgspec.structs.replace(part, **changes)
    return part if new == part else new


def _advance(part: PartStatus, state: JobState, **changes: object) -> PartStatus:
    """Forward only; states never go back."""
    if _ORDER[state] <= _ORDER[part.state]:
        return part
    return msgspec.structs.replace(part, state=state, **changes)


def _stop(part: PartStatus, event: StopAsked) -> PartStatus:
    """The first reason stays, but whom a person ends has not failed."""
    if part.state != "stopping":
        return _advance(part, "stopping", stop_reason=event.reason, problem=event.problem)
    if part.problem is not None and event.problem is None:
        return _changed(part, stop_reason=event.reason, problem=None)
    return part


def _started(part: PartStatus, time_s: float) -> PartStatus:
    """The first start counts; told late, after its ranks were seen, it still counts."""
    if part.started_s is not None:
        return part
    return msgspec.structs.replace(part, started_s=time_s)


def _stepped(part: PartStatus, rank: Rank, step: int) -> PartStatus:
    """Steps never go back either."""
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
    # A rank may have ended before the last one came up: that one need not be running any more.
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
        # A rank whose own end nobody saw: with its part failed it was cut off, not guilty.
        else msgspec.structs.replace(status, state="canceled" if state == "failed" else state)
        for status in part.ranks
    )
    return msgspec.structs.replace(
        part,
        state=state,
        ranks=ranks,
        exit_code=event.exit_code,
        ended_s=event.time_s,
        # Only a failure has one: what ranks print while they are stopped is noise.
        problem=problem if state == "failed" else None,
        leftovers=event.leftovers,
    )
