"""Orders of schedules with one stage per rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jupyter_mntrain.recipe.orders.actions import Actions, Slots, StageAction, Stages, with_messages
from jupyter_mntrain.recipe.schedules import eager_order


def eager(ahead: Sequence[int], microbatches: int) -> tuple[Actions, ...]:
    """1F1B with a number of microbatches in flight for each stage."""
    computing = [eager_slots(stage, count, microbatches) for stage, count in enumerate(ahead)]
    return with_messages(Stages(len(ahead)), computing)


def eager_slots(stage: int, ahead: int, microbatches: int) -> Slots:
    """Return what a stage of eager 1F1B computes.

    Args:
        ahead: microbatches in flight, at least 1.
    """
    order = eager_order(ahead, microbatches)
    return tuple((StageAction(kind, stage, microbatch),) for kind, microbatch in order)


def gpipe(ranks: int, microbatches: int) -> tuple[Actions, ...]:
    """All forward passes, then all backward passes (arXiv 1811.06965), as torch runs them."""
    return tuple(tuple(_gpipe(_Stage(ranks, rank), microbatches)) for rank in range(ranks))


def one_f_one_b(ranks: int, microbatches: int) -> tuple[Actions, ...]:
    """As many forward passes ahead as stages are left (arXiv 2006.09503), as torch runs them.

    torch waits until an activation is sent before it computes the next backward pass, and until a
    gradient is sent before the next forward pass.
    """
    return tuple(tuple(_one_f_one_b(_Stage(ranks, rank), microbatches)) for rank in range(ranks))


class _Stage:
    """Actions of one stage; none where it has no neighbor to exchange with."""

    def __init__(self, ranks: int, index: int) -> None:
        self.left = ranks - index
        self._index = index
        self._has_before, self._has_after = index > 0, self.left > 1

    def forward(self, microbatch: int, *, after: Sequence[StageAction] = ()) -> list[StageAction]:
        """Begin to receive an activation; do what comes after that; compute."""
        received = [StageAction("RECV_F", self._index, microbatch)] if self._has_before else []
        return [*received, *after, StageAction("F", self._index, microbatch)]

    def backward(self, microbatch: int, *, after: Sequence[StageAction] = ()) -> list[StageAction]:
        """Begin to receive a gradient; do what comes after that; compute."""
        received = [StageAction("RECV_B", self._index, microbatch)] if self._has_after else []
        return [*received, *after, StageAction("B", self._index, microbatch)]

    def send_activation(self, microbatch: int) -> list[StageAction]:
        return [StageAction("SEND_F", self._index, microbatch)] if self._has_after else []

    def send_gradient(self, microbatch: int) -> list[StageAction]:
        return [StageAction("SEND_B", self._index, microbatch)] if self._has_before else []


def _awaited(sent: Sequence[StageAction]) -> list[StageAction]:
    return [one._replace(kind="AWAIT_F" if one.kind == "SEND_F" else "AWAIT_B") for one in sent]


def _gpipe(stage: _Stage, microbatches: int) -> Iterator[StageAction]:
    for compute, send in (
        (stage.forward, stage.send_activation),
        (stage.backward, stage.send_gradient),
    ):
        for microbatch in range(microbatches):
            yield from (*compute(microbatch), *send(microbatch))
        for microbatch in range(microbatches):
            yield from _awaited(send(microbatch))


def _one_f_one_b(stage: _Stage, microbatches: int) -> Iterator[StageAction]:
    ahead = min(microbatches, stage.left)
    sent: list[StageAction] = []
    for microbatch in range(ahead):
        yield from (*stage.forward(microbatch), *_awaited(sent))
        sent = stage.send_activation(microbatch)
        if microbatch < ahead - 1:
            yield from sent
    for microbatch in range(microbatches - ahead + 1):
        yield from (*sent, *stage.backward(microbatch, after=_awaited(sent)))
        sent = stage.send_gradient(microbatch)
        if microbatch + ahead < microbatches:
            yield from (*sent, *stage.forward(microbatch + ahead, after=_awaited(sent)))
            sent = stage.send_activation(microbatch + ahead)
    yield from sent
    for microbatch in range(microbatches - ahead + 1, microbatches):
        yield from (*stage.backward(microbatch), *_awaited(sent))
        sent = stage.send_gradient(microbatch)
        yield from sent
    yield from _awaited(sent)
