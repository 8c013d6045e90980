"""Order of eager zero bubble: one stage per rank, with gradients of weights put off.

The previous stage waits for the gradients of inputs, and nobody for those of weights: they fill the
time in which 1F1B idles (zero-bubble pipelines, arXiv 2401.10241). With one stage per rank, nothing
more is sent than by 1F1B.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

from jupyter_mntrain.recipe.orders.actions import (
    Actions,
    Slots,
    StageAction,
    Stages,
    with_messages,
)
from jupyter_mntrain.recipe.schedules import eager_order

T = TypeVar("T")


def eager_zero_bubble(
    ahead: Sequence[int], kept_back: Sequence[int], microbatches: int
) -> tuple[Actions, ...]:
    """Return what each rank does in a step.

    Args:
        ahead: microbatches in flight of each stage, at least 1.
        kept_back: most gradients of weights that each stage puts off at once; 0 computes whole
            backward passes.
    """
    computing = [
        zero_bubble_slots(stage, count, put_off, microbatches)
        for stage, (count, put_off) in enumerate(zip(ahead, kept_back, strict=True))
    ]
    without = [tuple(slot for slot in slots if slot[0].kind != "W") for slots in computing]
    orders = with_messages(Stages(len(ahead)), without)
    return tuple(
        tuple(with_weights(order, [slot[0] for slot in slots], lambda one: one.kind == "W"))
        for order, slots in zip(orders, computing, strict=True)
    )


def with_weights(
    order: Sequence[T], computed: Sequence[T], is_weights: Callable[[T], bool]
) -> list[T]:
    """Put a stage's gradients of weights into its order, each before what is computed next.

    What is sent and received between two others goes before them: nobody waits for gradients of
    weights.

    Args:
        order: without them, with messages.
        computed: with them, without messages.
    """
    before: dict[T, list[T]] = {}
    waiting: list[T] = []
    for one in computed:
        if is_weights(one):
            waiting.append(one)
        else:
            before[one], waiting = waiting, []
    return [one for action in order for one in (*before.get(action, ()), action)] + waiting


def zero_bubble_slots(stage: int, ahead: int, kept_back: int, microbatches: int) -> Slots:
    """Return what a stage computes, with whole backward passes if it puts off nothing.

    Args:
        ahead: microbatches in flight, at least 1.
        kept_back: most gradients of weights that it puts off at once.
    """
    order: list[StageAction] = []
    put_off: deque[int] = deque()
    for kind, microbatch in eager_order(ahead, microbatches):
        if kind == "F" or not kept_back:
            order.append(StageAction(kind, stage, microbatch))
            continue
        order.append(StageAction("I", stage, microbatch))
        put_off.append(microbatch)
        if len(put_off) > kept_back:
            order.append(StageAction("W", stage, put_off.popleft()))
    order += [StageAction("W", stage, microbatch) for microbatch in put_off]
    return tuple((action,) for action in order)
