"""Orders of schedules with several stages per rank, whose ranks follow each other in a loop."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from jupyter_mntrain.recipe.orders.actions import Actions, Slots, StageAction, Stages, with_messages


def looped_bfs(stages: Stages, microbatches: int) -> tuple[Actions, ...]:
    """Breadth first (arXiv 2211.05953): a stage's microbatches one after another, and back."""
    computing = []
    for rank in range(stages.ranks):
        own = range(rank, stages.number, stages.ranks)
        forward = [StageAction("F", stage, one) for stage in own for one in range(microbatches)]
        back = [one._replace(kind="B") for one in reversed(forward)]
        computing.append(tuple((action,) for action in (*forward, *back)))
    return with_messages(stages, computing)


def interleaved(
    stages: Stages, microbatches: int, *, splits_backward: bool = False
) -> tuple[Actions, ...]:
    """Interleaved 1F1B (arXiv 2104.04473), or with ZB1P's halves of the backward pass (2401.10241).

    Microbatches go in rounds, of about as many as there are ranks: a rank computes a round on one
    of its stages, then on its next one.
    """
    computing = [
        _interleaved(stages, rank, microbatches, splits_backward=splits_backward)
        for rank in range(stages.ranks)
    ]
    return with_messages(stages, computing)


def _interleaved(stages: Stages, rank: int, microbatches: int, *, splits_backward: bool) -> Slots:
    rounds = max(1, microbatches // stages.ranks)
    each = microbatches // rounds
    total = microbatches * stages.per_rank
    hop = 1 if splits_backward else 2
    ahead = min((stages.per_rank - 1) * each + hop * (stages.ranks - 1 - rank), total)
    forward = list(_in_rounds(stages, rank, each, total))
    back = list(_in_rounds(stages, rank, each, total, is_backward=True))
    order = [StageAction("F", *one) for one in forward[:ahead]]
    for done, one in enumerate(back):
        order += [StageAction("F", *each) for each in forward[ahead + done : ahead + done + 1]]
        order.append(StageAction("I" if splits_backward else "B", *one))
        if splits_backward and done >= rank:
            order.append(StageAction("W", *back[done - rank]))
    if splits_backward:
        order += [StageAction("W", *one) for one in back[max(0, total - rank) :]]
    return tuple((action,) for action in order)


def _in_rounds(
    stages: Stages, rank: int, each: int, total: int, *, is_backward: bool = False
) -> Iterator[tuple[int, int]]:
    """Yield a stage and its next microbatch, for all of a rank's."""
    following = [count() for _ in range(stages.per_rank)]
    for done in range(total):
        local = done // each % stages.per_rank
        if is_backward:
            local = stages.per_rank - 1 - local
        yield local * stages.ranks + rank, next(following[local])
