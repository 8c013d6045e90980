"""Restarts: whether and when a failed attempt is followed by another. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.ids import NodeId, Rank
from jupyter_mntrain.model.lifecycle.rollup import job_state
from jupyter_mntrain.model.records.job import Attempt, JobRecord, PartStatus, Placement, Restart

FIRST_BACKOFF_S = tunables.seconds("restarts.first_backoff_s")
LAST_BACKOFF_S = tunables.seconds("restarts.last_backoff_s")

USER_ERROR = 2
"""Exit code of a program that says in one clean line what was wrong with its input. Started again
it would be wrong again."""


def next_restart(record: JobRecord, parts: Sequence[PartStatus], now_s: float) -> Restart | None:
    """The attempt after this one; ``None`` if the job is over.

    Args:
        record: the head's.
        parts: of the attempt that has ended, as far as they are known.
        now_s: Unix time.
    """
    done = record.attempt.number - 1
    ended = job_state(part.state for part in parts if part.state != "unknown")
    if record.is_over or ended != "failed" or done >= record.spec.max_restarts:
        return None
    if any(rank.exit_code == USER_ERROR for part in parts for rank in part.ranks):
        return None
    return Restart(
        number=record.attempt.number + 1,
        at_s=now_s + min(FIRST_BACKOFF_S * 2**done, LAST_BACKOFF_S),
    )


def first_start(now_s: float) -> Restart:
    """Of a job that waits in the queue: as soon as it can have everything."""
    return Restart(number=1, at_s=now_s)


def without(placements: Sequence[Placement], left_out: Collection[NodeId]) -> tuple[Placement, ...]:
    """The placements of those that stay, their ranks numbered anew in the same order."""
    kept: list[Placement] = []
    first = 0
    for place in placements:
        if place.node_id in left_out:
            continue
        kept.append(msgspec.structs.replace(place, node_rank=len(kept), first_rank=Rank(first)))
        first += place.nproc
    return tuple(kept)


def is_same_place(one: Placement, other: Placement) -> bool:
    """Whether a later attempt takes the same of a node as the one a driver has deposited."""
    return all(
        getattr(one, name) == getattr(other, name)
        for name in ("node_id", "nproc", "gpus", "interface")
    )


def may_succeed(record: JobRecord) -> bool:
    """Whether another node may take the place of a head that is lost.

    Only where a job needs more than half of its nodes: when a network falls into two parts, both
    would otherwise go on, each for itself.
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
    """Whether ``attempt`` may come after the one that is known: same nodes and places, and the same
    head, or without it.
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
