"""Restarts: decides whether and when another attempt follows a failed one. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import reduce

import msgspec

from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.failure.fixes import fix_of
from jupyter_mntrain.model.failure.kinds import OF_THE_SCRIPT, SILENCES, USELESS_TO_REPEAT, Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import NodeId, Rank
from jupyter_mntrain.model.lifecycle.rollup import is_out, job_state
from jupyter_mntrain.model.lifecycle.running_changes import with_change
from jupyter_mntrain.model.quantities import duration_text
from jupyter_mntrain.model.records.job import (
    Attempt,
    Earlier,
    JobRecord,
    JobSpec,
    PartStatus,
    Placement,
    Restart,
)

FIRST_BACKOFF_S = tunables.seconds("restarts.first_backoff_s")
LAST_BACKOFF_S = tunables.seconds("restarts.last_backoff_s")

EARLY_S = tunables.seconds("restarts.early_s")

MOST_FAILURES = 10
"""Earlier failures that an attempt is told of."""

USER_ERROR = 2
"""Exit code of a program that rejects its input; restarting it would not help."""


def next_restart(record: JobRecord, parts: Sequence[PartStatus], now_s: float) -> Restart | None:
    """Plan the next attempt; ``None`` if the job is over.

    Args:
        record: the head's.
        parts: known parts of the attempt that has ended.
        now_s: Unix time.
    """
    done = record.attempt.number - 1
    ended = job_state(part.state for part in parts if part.state != "unknown")
    if record.is_over or ended != "failed" or done >= record.spec.max_restarts:
        return None
    if any(rank.exit_code == USER_ERROR for part in parts for rank in part.ranks):
        return None
    least, lost = record.spec.min_nodes, sum(map(is_out, parts))
    if lost and (least is None or len(record.attempt.placements) - lost < least):
        return None  # only a driver can deposit the job there again
    if any(part.problem and part.problem.kind in USELESS_TO_REPEAT for part in parts):
        return None
    failure, is_early = _failure(parts), all(map(_was_early, parts))
    if failure is not None and is_early and fails_alike(record.attempt, failure):
        return None
    return Restart(
        number=record.attempt.number + 1,
        at_s=now_s + min(FIRST_BACKOFF_S * 2**done, LAST_BACKOFF_S),
        failure=failure,
        is_early=is_early,
    )


def _failure(parts: Sequence[PartStatus]) -> Problem | None:
    """Return the first problem of an attempt, without details, causes before symptoms."""
    found = [one.problem for one in parts if one.problem is not None]
    if not found:
        return None
    first = min(found, key=lambda one: (one.is_symptom, one.time_s or 0.0))
    return msgspec.structs.replace(first, detail="")


def _was_early(part: PartStatus) -> bool:
    """Whether a part ended early, without having reported a step or a checkpoint."""
    took_s = (part.ended_s or 0.0) - (part.started_s or part.ended_s or 0.0)
    is_new = part.saved_step is None and not any(rank.step for rank in part.ranks)
    return is_new and took_s <= EARLY_S


def fails_alike(attempt: Attempt, failure: Problem) -> bool:
    """Whether an attempt made no progress and failed like the one before: with the same error in
    the same line of the script.
    """
    before = attempt.earlier
    if before is None or not before.failures or not before.is_early:
        return False
    last = before.failures[-1]
    return failure.kind in OF_THE_SCRIPT and (failure.kind, failure.cause) == (
        last.kind,
        last.cause,
    )


def earlier_attempts(record: JobRecord) -> Earlier | None:
    """Summarize the attempts so far for the next one; ``None`` if there are none."""
    if record.is_queued:
        return None
    attempt, part = record.attempt, record.part
    before = before_attempt(record.spec, attempt) or Earlier(world_size=attempt.world_size)
    step = max((rank.step or 0 for rank in part.ranks), default=0)
    saved = max(part.saved_step or 0, before.saved_step or 0) or None
    changes = reduce(with_change, part.changes, before.changes)
    plan = record.restart
    failures = before.failures + ((plan.failure,) if plan and plan.failure else ())
    before = msgspec.structs.replace(
        before,
        saved_step=saved,
        changes=changes,
        failures=failures[-MOST_FAILURES:],
        is_early=plan is not None and plan.is_early,
        begun_s=part.started_s if before.begun_s is None else before.begun_s,
    )
    if step <= (before.step or 0):
        return before
    return msgspec.structs.replace(before, step=step, attempt=attempt.number)


def before_attempt(spec: JobSpec, attempt: Attempt) -> Earlier | None:
    """Return how far the run had come when an attempt started; ``None`` for the run's first
    attempt.
    """
    origin = spec.origin
    if attempt.earlier is not None or origin is None:
        return attempt.earlier
    return Earlier(
        world_size=origin.world_size or attempt.world_size,
        step=origin.reached,
        saved_step=origin.step,
    )


def first_start(now_s: float) -> Restart:
    """Plan the first attempt of a queued job: it may start at once."""
    return Restart(number=1, at_s=now_s)


def in_next_grant(record: JobRecord, now_s: float) -> Restart:
    """Plan the attempt after one whose nodes were taken back and will be granted again."""
    cause = "its allocation waits for nodes again"
    awaited = Problem(kind=Kind.WAITS_FOR_NODES, cause=cause)
    return Restart(number=record.attempt.number + 1, at_s=now_s, waits_for=awaited)


def is_in_next_grant(plan: Restart) -> bool:
    """Whether an attempt starts only once its nodes are granted again."""
    return plan.waits_for is not None and plan.waits_for.kind is Kind.WAITS_FOR_NODES


def as_granted(plan: Restart, now_s: float) -> Restart:
    """Plan the same attempt, now that its nodes are granted again."""
    return Restart(number=plan.number, at_s=now_s)


def waiting(plan: Restart, waits_for: Problem, now_s: float) -> Restart:
    """Return a planned attempt, with the reason why it could not start now."""
    is_lost = waits_for.kind in SILENCES or waits_for.kind is Kind.SILENT
    since_s = plan.lost_since_s or now_s if is_lost else None
    return msgspec.structs.replace(plan, waits_for=waits_for, lost_since_s=since_s)


def waited_too_long(record: JobRecord, now_s: float) -> Problem | None:
    """Return why a job's next attempt is given up; ``None`` if it may wait longer.

    Args:
        record: the head's.
        now_s: Unix time.
    """
    spec, plan = record.spec, record.restart
    if plan is None:
        return None
    reason = f"; it waited for this: {plan.waits_for}" if plan.waits_for is not None else ""
    queued_s = now_s - record.attempt.submitted_s
    if record.is_queued and spec.queue_limit_s is not None and queued_s >= spec.queue_limit_s:
        return Problem(
            kind=Kind.WAITED_TOO_LONG,
            cause=f"did not start within {duration_text(spec.queue_limit_s)}, its limit in the "
            f"queue{reason}",
            fix=fix_of(Kind.WAITED_TOO_LONG),
            time_s=now_s,
        )
    if plan.lost_since_s is None or spec.lost_limit_s is None:
        return None
    if now_s - plan.lost_since_s < spec.lost_limit_s:
        return None
    node = plan.waits_for.node if plan.waits_for else None
    return Problem(
        kind=Kind.WAITED_TOO_LONG,
        cause=f"attempt {plan.number} was given up: {node or 'a node'} did not answer for "
        f"{duration_text(spec.lost_limit_s)}, the job's limit",
        fix=fix_of(Kind.WAITED_TOO_LONG, "lost", job=record.job_id),
        time_s=now_s,
    )


def without(placements: Sequence[Placement], left_out: Collection[NodeId]) -> tuple[Placement, ...]:
    """Remove nodes from placements, and renumber the remaining ranks in the same order."""
    kept: list[Placement] = []
    first = 0
    for place in placements:
        if place.node_id in left_out:
            continue
        kept.append(msgspec.structs.replace(place, node_rank=len(kept), first_rank=Rank(first)))
        first += place.nproc
    return tuple(kept)


def is_same_place(one: Placement, other: Placement) -> bool:
    """Whether two placements use as much of the same node. By its leases, the node itself decides
    which GPUs and which interface.
    """
    same = all(getattr(one, name) == getattr(other, name) for name in ("node_id", "nproc"))
    return same and len(one.gpus) == len(other.gpus)


def may_succeed(record: JobRecord) -> bool:
    """Whether another node may replace a lost head.

    Only if the job requires more than half of its nodes; otherwise both halves of a partitioned
    network could continue the job.
    """
    least = record.spec.min_nodes
    return (
        record.spec.max_restarts > 0
        and not record.is_queued
        and least is not None
        and 2 * least > len(record.members)
    )


def may_lead(node_id: NodeId, record: JobRecord) -> bool:
    """Whether a node may start the next attempt of a job."""
    is_head = node_id == record.attempt.head.node_id
    return is_head or (may_succeed(record) and node_id in record.members)


def follows(attempt: Attempt, record: JobRecord) -> bool:
    """Whether ``attempt`` may follow the recorded one: with the same placements or fewer, though
    with other GPUs, interfaces and addresses.
    """
    before = {place.node_id: place for place in record.attempt.placements}
    head = record.attempt.head.node_id
    return (
        attempt.number > record.attempt.number
        and bool(attempt.placements)
        and may_lead(attempt.head.node_id, record)
        and (
            attempt.head.node_id == head
            or head not in {place.node_id for place in attempt.placements}
        )
        and all(
            place.node_id in before and is_same_place(place, before[place.node_id])
            for place in attempt.placements
        )
    )


def is_same_start(one: Attempt, other: Attempt) -> bool:
    """Whether an attempt is a repeated request, not another head's attempt with the same number."""
    return (one.number, one.placements, one.master_port) == (
        other.number,
        other.placements,
        other.master_port,
    )
