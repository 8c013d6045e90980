"""Orders of schedules whose first and last stage are on the same rank."""

from __future__ import annotations

from collections import Counter, deque

from jupyter_mntrain.recipe.orders.actions import (
    Actions,
    Computing,
    Slot,
    Slots,
    StageAction,
    Stages,
    with_messages,
)


def zbv(ranks: int, microbatches: int) -> tuple[Actions, ...]:
    """ZB-V (arXiv 2401.10241, section 6): fills idle time with the gradients of weights."""
    stages = Stages(ranks, 2, is_v=True)
    return with_messages(stages, [_zbv(stages, rank, microbatches) for rank in range(ranks)])


def dualpipe_v(ranks: int, microbatches: int) -> tuple[Actions, ...]:
    """DualPipe's half, "cut in half" into a V: a forward and a backward pass side by side."""
    stages = Stages(ranks, 2, is_v=True)
    return with_messages(stages, [_dualpipe_v(stages, rank, microbatches) for rank in range(ranks)])


class _Order:
    """Order of a rank: each stage's next microbatch follows from what is there already."""

    def __init__(self, stages: Stages, rank: int) -> None:
        self.down, self.up = rank, stages.number - 1 - rank
        self.slots: list[Slot] = []
        self._done: Counter[tuple[str, int]] = Counter()
        self._weights: deque[tuple[int, int]] = deque()
        """Stage and microbatch of halved backward passes whose weights are still to come."""

    def count(self, kind: str, stage: int) -> int:
        """Microbatches done: of forward passes, or of whole or halved backward passes."""
        return self._done[kind, stage]

    def add(self, *whats: tuple[Computing, int]) -> None:
        """Add the next microbatches of these kinds and stages, side by side."""
        self.slots.append(tuple(self._next(kind, stage) for kind, stage in whats))

    def add_weights(self) -> None:
        """Add the gradients of weights of the oldest halved backward pass, if there is one."""
        if self._weights:
            self.slots.append((StageAction("W", *self._weights.popleft()),))

    def add_weights_of(self, stage: int) -> None:
        """Add those of this stage."""
        oldest = next(one for one in self._weights if one[0] == stage)
        self._weights.remove(oldest)
        self.slots.append((StageAction("W", *oldest),))

    def add_weights_left(self, stage: int) -> None:
        """Add all of this stage's that are still to come."""
        while any(one[0] == stage for one in self._weights):
            self.add_weights_of(stage)

    def _next(self, kind: Computing, stage: int) -> StageAction:
        counted = "F" if kind == "F" else "B"
        action = StageAction(kind, stage, self._done[counted, stage])
        self._done[counted, stage] += 1
        if kind == "I":
            self._weights.append((stage, action.microbatch))
        return action


def _zbv(stages: Stages, rank: int, microbatches: int) -> Slots:
    order, left = _Order(stages, rank), stages.ranks - rank
    down, up = order.down, order.up
    # A pipeline is full with this many; those beyond the real ones are left out at the end.
    filled = max(2 * stages.ranks - 1, microbatches)

    def halves(stage: int) -> None:
        order.add(("I", stage))
        order.add_weights_of(stage)

    for _ in range(2 * left - 1):
        order.add(("F", down))
    for _ in range(rank):
        order.add(("F", up))
        order.add(("F", down))
    for _ in range(left):
        order.add(("F", up))
        halves(up)
    while order.count("F", up) < max(order.count("F", down), filled):
        if order.count("F", down) < filled:
            order.add(("F", down))
        halves(down)
        order.add(("F", up))
        halves(up)
    for _ in range(rank):
        order.add(("I", down))
        order.add(("I", up))
    for _ in range(left):
        order.add(("I", down))
        order.add_weights_of(down)
    order.add_weights_left(up)
    order.add_weights_left(down)
    return tuple(slot for slot in order.slots if slot[0].microbatch < microbatches)


def _dualpipe_v(stages: Stages, rank: int, microbatches: int) -> Slots:
    order, left = _Order(stages, rank), stages.ranks - 1 - rank
    down, up = order.down, order.up
    for _ in range(2 * left):
        order.add(("F", down))
    for _ in range(rank + 1):
        order.add(("F", down))
        order.add(("F", up))
    for _ in range(left):
        order.add(("I", up))
        order.add_weights()
        order.add(("F", up))
    for done in range(microbatches - stages.number + rank + 1):
        if done == 0 and left == 0:
            order.add(("F", down))
            order.add(("B", up))
        else:
            order.add(("F", down), ("B", up))
        order.add(("F", up), ("B", down))
    for _ in range(left):
        order.add(("B", up))
        order.add(("F", up), ("B", down))
    _dualpipe_v_end(order, rank, left)
    return tuple(order.slots)


def _dualpipe_v_end(order: _Order, rank: int, left: int) -> None:
    """The last backward passes: the second half of them in two parts."""
    half = (rank + 1) // 2
    kind: Computing = "B"
    for done in range(rank + 1):
        if done == half and rank % 2 == 1:
            kind = "I"
        order.add((kind, order.up))
        if done == half and rank % 2 == 0:
            kind = "I"
        order.add((kind, order.down))
    for _ in range(left):
        order.add_weights()
        order.add((kind, order.down))
    for _ in range(rank + 1):
        order.add_weights()
