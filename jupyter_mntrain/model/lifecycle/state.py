"""State transitions of one node's part of an attempt: ``apply(part, event) -> part``. Pure.

    pending → starting → running → stopping → succeeded | failed | canceled

Terminal states are final: a late or repeated event changes nothing.
"""

from __future__ import annotations

import msgspec

from jupyter_mntrain.model.failure.fixes import fix_of
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import NodeId, Rank
from jupyter_mntrain.model.lifecycle.events import (
    EndAwaited,
    EndWished,
    EpisodesJudged,
    EvidenceGathered,
    Exited,
    Launched,
    LinksTried,
    PartEvent,
    RankDone,
    RankDown,
    RankGone,
    RankJoined,
    RankKilled,
    RankStepped,
    RankUp,
    Resumed,
    SavedEvent,
    SettingsTaken,
    Stalled,
    StateLost,
    StopAsked,
    Warned,
    WarningOver,
)
from jupyter_mntrain.model.lifecycle.running_changes import with_change
from jupyter_mntrain.model.lifecycle.saves import saved_changes
from jupyter_mntrain.model.records.job import (
    TERMINAL,
    Episode,
    JobState,
    PartStatus,
    RankStatus,
    newest,
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
        case Warned(problem=problem) if problem.kind is Kind.WAITED_TOO_LONG:
            # Said of a part that has ended: why no attempt follows.
            return _warned(part, problem)
    return part if part.state in TERMINAL else _apply_to_active(part, event)


def _apply_to_active(part: PartStatus, event: PartEvent) -> PartStatus:
    match event:
        case Launched(time_s=time_s):
            # Once, even if the event arrives after those of the ranks.
            started_s = time_s if part.started_s is None else part.started_s
            return _advance(_changed(part, started_s=started_s), "starting")
        case (
            RankUp()
            | RankStepped()
            | RankDown()
            | RankDone()
            | RankGone()
            | RankJoined()
            | RankKilled()
        ):
            return _apply_to_rank(part, event)
        case Warned(problem=problem):
            return _warned(part, problem)
        case WarningOver():
            return _warning_over(part, event)
        case StopAsked():
            return _stop(part, event)
        case (
            SavedEvent()
            | SettingsTaken()
            | EndWished()
            | EndAwaited()
            | StateLost()
            | EpisodesJudged()
        ):
            return _note(part, event)
        case Stalled(stall=stall):
            return part if part.state == "stopping" else _changed(part, stall=stall)
        case Resumed():
            return _changed(part, stall=None, evidence=None)
        case Exited():
            return _end(part, event)
    return part


def _apply_to_rank(
    part: PartStatus,
    event: RankUp | RankStepped | RankDown | RankDone | RankGone | RankJoined | RankKilled,
) -> PartStatus:
    match event:
        case RankJoined(rank=rank, size=size, own_torchrun=inner):
            # Whom a rank has met is known for sure only once it has ended.
            return _met(part, rank, size, inner)
        case RankGone(rank=rank, time_s=time_s, exit_code=code, problem=problem):
            why = _as_wished(part, problem)
            return _set_rank(part, rank, ended_s=time_s, exit_code=code, problem=why)
        case RankDone(rank=rank, time_s=time_s):
            return _set_rank(part, rank, done_s=time_s)
        case RankKilled(rank=rank, reason=reason):
            return _set_rank(part, rank, kill_reason=reason)
        case RankUp(rank=rank, pid=pid, saves=saves, resumed_step=resumed):
            resumed = part.resumed_step if resumed is None else resumed
            part = _changed(part, saves=part.saves or saves, resumed_step=resumed)
            return _running_when_all_are(_set_rank(part, rank, state="running", pid=pid))
        case RankStepped(rank=rank, step=step):
            return _running_when_all_are(_stepped(part, rank, step))
        case RankDown(rank=rank, exit_code=code, problem=problem, time_s=time_s, killed_in=place):
            is_asked = part.state == "stopping" and not _failed_before(part, problem)
            bad: JobState = "canceled" if is_asked else "failed"
            ended: JobState = "succeeded" if code == 0 else bad
            known = _as_wished(part, problem)
            done: dict[str, object] = {} if time_s is None else {"done_s": time_s}
            if place is not None:
                done["killed_in"] = place
            return _set_rank(part, rank, state=ended, exit_code=code, problem=known, **done)


def _failed_before(part: PartStatus, problem: Problem | None) -> bool:
    """Whether a rank failed by itself before its part was stopped because another one failed."""
    if problem is None or problem.is_symptom or not part.stopped_after_failure:
        return False
    return (problem.time_s or float("inf")) <= (part.stopped_s or 0.0)


def _note(
    part: PartStatus,
    event: SavedEvent | SettingsTaken | EndWished | EndAwaited | StateLost | EpisodesJudged,
) -> PartStatus:
    """Record an event that does not change the state."""
    match event:
        case SavedEvent():
            return _changed(part, **saved_changes(part, event))
        case SettingsTaken(change=change):
            return _changed(part, changes=with_change(part.changes, change))
        case EndWished(reason=reason):
            return _changed(part, stop_reason=part.stop_reason or reason)
        case EndAwaited(processes=processes):
            return _changed(part, waits_for=processes) if part.state == "stopping" else part
        case StateLost(problem=problem):
            return _changed(part, state_problem=problem)
        case EpisodesJudged(episodes=episodes):
            return _changed(part, episodes=newest(episodes))


def _warned(part: PartStatus, problem: Problem) -> PartStatus:
    """Keep the first warning of each kind and rank: the others repeat it for later steps."""
    if any((one.kind, one.rank) == (problem.kind, problem.rank) for one in part.warnings):
        return part
    return _changed(part, warnings=(*part.warnings, problem))


def _warning_over(part: PartStatus, event: WarningOver) -> PartStatus:
    """Move a warning into the history."""
    over = [one for one in part.warnings if (one.kind, one.rank) == (event.kind, event.rank)]
    ended = [
        Episode(problem=one, label=one.kind.replace("-", " "), end_s=event.time_s or one.time_s)
        for one in over
    ]
    return _changed(
        part,
        warnings=tuple(one for one in part.warnings if one not in over),
        episodes=newest((*part.episodes, *ended)),
    )


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
    """Keep the first reason for the stop, though an attempt that a person stops has not failed."""
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


def _met(part: PartStatus, rank: Rank, size: int, inner: str) -> PartStatus:
    def change(status: RankStatus) -> RankStatus:
        if status.rank != rank:
            return status
        return msgspec.structs.replace(status, group_size=size, own_torchrun=inner)

    return _changed(part, ranks=tuple(change(status) for status in part.ranks))


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


def _as_wished(part: PartStatus, problem: Problem | None) -> Problem | None:
    """Return the problem; if a person had the rank killed, with that as its cause."""
    if problem is None or problem.kind not in (Kind.KILLED, Kind.OUT_OF_MEMORY):
        return problem
    reason = next((one.kill_reason for one in part.ranks if one.rank == problem.rank), "")
    if not reason:
        return problem
    fix = fix_of(Kind.KILLED, "wished")
    return msgspec.structs.replace(problem, kind=Kind.KILLED, cause=reason, fix=fix)


def _end(part: PartStatus, event: Exited) -> PartStatus:
    problem = _as_wished(part, event.problem)
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
        waits_for=(),
        state_problem=None,
        episodes=tuple(one.ended(event.time_s) for one in part.episodes),
    )
