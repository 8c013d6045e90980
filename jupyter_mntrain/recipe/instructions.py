"""Instruction schedules: what each rank computes, sends and receives in a step, in order."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import count, pairwise
from typing import Literal, NamedTuple, TypeVar

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.schedules import KINDS, ScheduleName, eager_order, in_flight
from jupyter_mntrain.recipe.sections import Recipe

# Actions: what a rank computes, sends, receives and waits for in a step.


Computing = Literal["F", "B", "I", "W"]
"""A forward pass, a backward pass, and its two halves: the gradients of inputs and of weights."""

Messaging = Literal["SEND_F", "RECV_F", "SEND_B", "RECV_B", "AWAIT_F", "AWAIT_B"]
"""Start to send or receive an activation (F) or its gradient (B), and wait until one is sent."""


class StageAction(NamedTuple):
    """One action of a rank.

    Args:
        stage: that computes, sends, receives or waits.
    """

    kind: Computing | Messaging
    stage: int
    microbatch: int

    @property
    def computes(self) -> bool:
        return len(self.kind) == 1


Slot = tuple[StageAction, ...]
"""What is computed between two messages: one action, or a forward and a backward pass."""

Slots = tuple[Slot, ...]
"""What one rank computes in a step, in order."""

Actions = tuple[StageAction, ...]
"""What one rank does in a step, in order, with its messages."""


class Stages(NamedTuple):
    """Stages of a pipeline, and their ranks: s mod R, or in a V down and back up.

    Args:
        ranks: of the pipeline, R.
        per_rank: stages on each.
    """

    ranks: int
    per_rank: int = 1
    is_v: bool = False

    @property
    def number(self) -> int:
        return self.ranks * self.per_rank

    def rank_of(self, stage: int) -> int:
        return rank_of_stage(stage, self.ranks, is_v=self.is_v)

    def sends(self, action: StageAction) -> StageAction | None:
        """Return the message that a stage and rank send after an action, if any."""
        after = action.stage + (1 if action.kind == "F" else -1)
        if action.kind == "W" or not 0 <= after < self.number:
            return None
        if self.rank_of(after) == self.rank_of(action.stage):
            return None
        return StageAction(
            "SEND_F" if action.kind == "F" else "SEND_B", action.stage, action.microbatch
        )

    def received(self, sent: StageAction) -> StageAction:
        """Return the receive action for a message that is sent."""
        is_forward = sent.kind == "SEND_F"
        after = sent.stage + (1 if is_forward else -1)
        return StageAction("RECV_F" if is_forward else "RECV_B", after, sent.microbatch)


def rank_of_stage(stage: int, ranks: int, *, is_v: bool = False) -> int:
    """Return the rank that holds a stage: ``s mod R``, or in a V down and back up."""
    turn, place = divmod(stage, ranks)
    return ranks - 1 - place if is_v and turn % 2 else place


def with_messages(stages: Stages, computing: Sequence[Slots]) -> tuple[Actions, ...]:
    """Add to each rank's computation the messages that torch's pipeline runtime sends.

    A result is sent as soon as it is there, and its receiver begins to receive it at the same place
    of one order of all ranks, so that no two of them wait for each other.

    Raises:
        ValueError: a rank would wait forever.
    """
    done: list[list[StageAction]] = [[] for _ in computing]
    known: list[set[StageAction]] = [set() for _ in computing]
    at = [0] * len(computing)
    while any(place < len(slots) for place, slots in zip(at, computing, strict=True)):
        before = sum(at)
        for rank, slots in enumerate(computing):
            if at[rank] == len(slots):
                continue
            slot = slots[at[rank]]
            if all(_is_ready(stages, action, known[rank]) for action in slot):
                at[rank] += 1
                _do(stages, slot, rank, done, known)
        if sum(at) == before:
            raise ValueError("every rank waits for another one")
    return tuple(map(tuple, done))


def _do(
    stages: Stages,
    slot: Slot,
    rank: int,
    done: Sequence[list[StageAction]],
    known: Sequence[set[StageAction]],
) -> None:
    done[rank] += slot
    for action in slot:
        known[rank].add(action)
        sent = stages.sends(action)
        if sent is not None:
            received = stages.received(sent)
            for place, one in ((rank, sent), (stages.rank_of(received.stage), received)):
                done[place].append(one)
                known[place].add(one)


def _is_ready(stages: Stages, action: StageAction, known: set[StageAction]) -> bool:
    kind, stage, microbatch = action
    if kind == "F" and stage > 0:
        given = {StageAction("RECV_F", stage, microbatch), StageAction("F", stage - 1, microbatch)}
    elif kind in "BI" and stage < stages.number - 1:
        after = [StageAction(one, stage + 1, microbatch) for one in ("B", "I")]
        given = {StageAction("RECV_B", stage, microbatch), *after}
    else:
        return True
    return not given.isdisjoint(known)


# Orders of schedules with one stage per rank.


def eager(ahead: Sequence[int], microbatches: int) -> tuple[Actions, ...]:
    """Make 1F1B with a given number of microbatches in flight for each stage."""
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
    """Make GPipe as torch runs it: all forward, then all backward passes (arXiv 1811.06965)."""
    return tuple(tuple(_gpipe(_Stage(ranks, rank), microbatches)) for rank in range(ranks))


def one_f_one_b(ranks: int, microbatches: int) -> tuple[Actions, ...]:
    """Make 1F1B as torch runs it: a forward pass ahead per stage left (arXiv 2006.09503).

    torch waits until an activation is sent before it computes the next backward pass, and until a
    gradient is sent before the next forward pass.
    """
    return tuple(tuple(_one_f_one_b(_Stage(ranks, rank), microbatches)) for rank in range(ranks))


class _Stage:
    """The actions of one stage; it exchanges nothing where it has no neighbor."""

    def __init__(self, ranks: int, index: int) -> None:
        self.left = ranks - index
        self._index = index
        self._has_before, self._has_after = index > 0, self.left > 1

    def forward(self, microbatch: int, *, after: Sequence[StageAction] = ()) -> list[StageAction]:
        """Start to receive an activation, do what comes after that, then compute."""
        received = [StageAction("RECV_F", self._index, microbatch)] if self._has_before else []
        return [*received, *after, StageAction("F", self._index, microbatch)]

    def backward(self, microbatch: int, *, after: Sequence[StageAction] = ()) -> list[StageAction]:
        """Start to receive a gradient, do what comes after that, then compute."""
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


# Orders of schedules with several stages per rank, whose ranks follow each other in a loop.


def looped_bfs(stages: Stages, microbatches: int) -> tuple[Actions, ...]:
    """Make looped BFS (arXiv 2211.05953): all microbatches of one stage, then of the next."""
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
    """Make interleaved 1F1B (arXiv 2104.04473), or with ZB1P's split backward pass (2401.10241).

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
    """Yield stage and microbatch of each of a rank's passes, in order."""
    following = [count() for _ in range(stages.per_rank)]
    for done in range(total):
        local = done // each % stages.per_rank
        if is_backward:
            local = stages.per_rank - 1 - local
        yield local * stages.ranks + rank, next(following[local])


# Orders of schedules whose first and last stage are on the same rank.


def zbv(ranks: int, microbatches: int) -> tuple[Actions, ...]:
    """Make ZB-V (arXiv 2401.10241, section 6), which fills idle time with weight gradients."""
    stages = Stages(ranks, 2, is_v=True)
    return with_messages(stages, [_zbv(stages, rank, microbatches) for rank in range(ranks)])


def dualpipe_v(ranks: int, microbatches: int) -> tuple[Actions, ...]:
    """Make DualPipe cut in half into a V, with a forward and a backward pass overlapped."""
    stages = Stages(ranks, 2, is_v=True)
    return with_messages(stages, [_dualpipe_v(stages, rank, microbatches) for rank in range(ranks)])


class _Order:
    """The order of one rank; each stage's next microbatch follows from what was added before."""

    def __init__(self, stages: Stages, rank: int) -> None:
        self.down, self.up = rank, stages.number - 1 - rank
        self.slots: list[Slot] = []
        self._done: Counter[tuple[str, int]] = Counter()
        self._weights: deque[tuple[int, int]] = deque()
        """Stage and microbatch of split backward passes that still lack weight gradients."""

    def count(self, kind: str, stage: int) -> int:
        """Count the finished microbatches: forward passes, or whole or split backward passes."""
        return self._done[kind, stage]

    def add(self, *whats: tuple[Computing, int]) -> None:
        """Add the next microbatches of these kinds and stages, overlapped."""
        self.slots.append(tuple(self._next(kind, stage) for kind, stage in whats))

    def add_weights(self) -> None:
        """Add the weight gradients of the oldest split backward pass, if there is one."""
        if self._weights:
            self.slots.append((StageAction("W", *self._weights.popleft()),))

    def add_weights_of(self, stage: int) -> None:
        """Add the oldest weight gradients of this stage."""
        oldest = next(one for one in self._weights if one[0] == stage)
        self._weights.remove(oldest)
        self.slots.append((StageAction("W", *oldest),))

    def add_weights_left(self, stage: int) -> None:
        """Add all of this stage's remaining weight gradients."""
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
    """Add the last backward passes, the second half of them split."""
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


# Order of eager zero bubble: one stage per rank, with gradients of weights deferred.
#
# The previous stage waits for the gradients of inputs, and nobody for those of weights: they fill
# the time in which 1F1B idles (zero-bubble pipelines, arXiv 2401.10241). With one stage per rank,
# nothing more is sent than by 1F1B.


T = TypeVar("T")


def eager_zero_bubble(
    ahead: Sequence[int], deferred: Sequence[int], microbatches: int
) -> tuple[Actions, ...]:
    """Return what each rank does in a step.

    Args:
        ahead: microbatches in flight of each stage, at least 1.
        deferred: most gradients of weights that each stage defers at once; 0 computes whole
            backward passes.
    """
    computing = [
        zero_bubble_slots(stage, count, most, microbatches)
        for stage, (count, most) in enumerate(zip(ahead, deferred, strict=True))
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
    """Insert a stage's weight gradients into its order, each before what is computed next.

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


def zero_bubble_slots(stage: int, ahead: int, deferred: int, microbatches: int) -> Slots:
    """Return what a stage computes, with whole backward passes if it defers nothing.

    Args:
        ahead: microbatches in flight, at least 1.
        deferred: most gradients of weights that it defers at once.
    """
    order: list[StageAction] = []
    waiting: deque[int] = deque()
    for kind, microbatch in eager_order(ahead, microbatches):
        if kind == "F" or not deferred:
            order.append(StageAction(kind, stage, microbatch))
            continue
        order.append(StageAction("I", stage, microbatch))
        waiting.append(microbatch)
        if len(waiting) > deferred:
            order.append(StageAction("W", stage, waiting.popleft()))
    order += [StageAction("W", stage, microbatch) for microbatch in waiting]
    return tuple((action,) for action in order)


# Counts: microbatches that each stage of an eager schedule holds, given or chosen. Pure.


FORWARDS = 3.0
"""Forward passes that take as long as one and its backward pass, about."""


class Counts(NamedTuple):
    """Numbers of microbatches per stage, from the first stage on.

    Args:
        ahead: in flight, at least 1.
        deferred: whose gradients of weights are deferred at most; 0 defers none.
    """

    ahead: tuple[int, ...]
    deferred: tuple[int, ...]


def check_counts(recipe: Recipe, stages: int) -> None:
    """Refuse counts that the schedule does not use, or that are not one per stage.

    Raises:
        RecipeError: naming the field and what to change.
    """
    kind, ahead = KINDS[recipe.schedule], recipe.pipeline.in_flight
    if ahead != "auto":
        _check_field("in_flight", ahead, recipe, stages, applies=kind.is_eager)
        if any(one < other for one, other in pairwise(ahead)):
            cause = f"pipeline.in_flight = {list(ahead)}: a stage has fewer than the next stage, "
            cause += "which would then wait for it"
            raise RecipeError(cause, fix="use numbers that never increase, like 4, 2, 1")
    if recipe.pipeline.deferred != "auto":
        _check_field("deferred", recipe.pipeline.deferred, recipe, stages, applies=kind.defers)


def _check_field(
    field: str, given: Sequence[int], recipe: Recipe, stages: int, *, applies: bool
) -> None:
    shown = f"pipeline.{field} = {list(given)}"
    if not applies:
        what = "has a fixed order" if field == "in_flight" else "defers no gradients"
        suits = "eager-1f1b" if field == "in_flight" else "eager-zero-bubble"
        cause = f"{shown}: {recipe.schedule} {what}"
        raise RecipeError(cause, fix=f'leave it out or use schedule = "{suits}"')
    if len(given) != stages:
        cause = f"{shown}: {len(given)} numbers for {stages} pipeline stages"
        raise RecipeError(cause, fix=f'give {stages} numbers or {field} = "auto"')


def choose_counts(
    recipe: Recipe,
    compute_s: Sequence[float],
    transfer_s: Sequence[float],
    most: Sequence[int],
) -> Counts:
    """Return the counts of a recipe, choosing those that it leaves open.

    Args:
        recipe: with an eager schedule.
        compute_s: forward and backward of one microbatch, per stage.
        transfer_s: round trip to the next stage, per boundary; 0 = on one machine.
        most: microbatches that fit into memory, per stage.
    """
    microbatches, defers = recipe.microbatches, KINDS[recipe.schedule].defers
    if recipe.pipeline.in_flight != "auto":
        ahead = recipe.pipeline.in_flight
    else:
        ahead = in_flight(compute_s, transfer_s, microbatches, most)
        if defers:
            first = min(_until_first_gradient(compute_s, transfer_s), microbatches, most[0])
            ahead = (max(first, ahead[0]), *ahead[1:])
    if not defers:
        return Counts(ahead, (0,) * len(ahead))
    if recipe.pipeline.deferred != "auto":
        return Counts(ahead, recipe.pipeline.deferred)
    return Counts(ahead, _deferred(ahead, transfer_s, microbatches, most))


def counts_without_links(recipe: Recipe, stages: int) -> Counts:
    """Return the counts for equal stages on one machine."""
    fits = (recipe.microbatches,) * stages
    return choose_counts(recipe, (1.0,) * stages, (0.0,) * (stages - 1), fits)


def _until_first_gradient(compute_s: Sequence[float], transfer_s: Sequence[float]) -> int:
    """Return how many forward passes the first stage can compute before its first gradient arrives.

    Later stages must not send as many ahead: what is sent first would hold up the gradients.
    """
    slowest, stages = max(compute_s), len(compute_s)
    on_links = math.ceil(FORWARDS * sum(transfer_s) / slowest) if slowest > 0 else 0
    return 2 * stages - 1 + on_links


def _deferred(
    ahead: Sequence[int], transfer_s: Sequence[float], microbatches: int, most: Sequence[int]
) -> tuple[int, ...]:
    """Return how many weight gradients each stage defers.

    It is one more for each boundary before a stage, two more for a boundary with a link.

    Nobody waits for the first stage's gradients of inputs. With a third each for forward, inputs
    and weights, the simulator finds no better ones without links, and hardly better ones over links
    faster than a forward pass.
    """
    wanted = [0]
    for transfer in transfer_s:
        wanted.append(wanted[-1] + (2 if transfer > 0 else 1))
    # In flight or deferred, no more than all microbatches are held.
    room = (
        microbatches if limit >= microbatches else max(0, limit - count)
        for count, limit in zip(ahead, most, strict=True)
    )
    return tuple(min(count, space) for count, space in zip(wanted, room, strict=True))


# Makes the order of any schedule.


def stages_of(schedule: ScheduleName, ranks: int, per_rank: int) -> Stages:
    """Return how a schedule's stages are assigned to ranks."""
    return Stages(ranks, per_rank, is_v=KINDS[schedule].is_v)


def make_order(
    schedule: ScheduleName,
    ranks: int,
    microbatches: int,
    *,
    stages_per_rank: int = 1,
    ahead: Sequence[int] | None = None,
    deferred: Sequence[int] | None = None,
) -> tuple[Actions, ...]:
    """Return what each rank of a pipeline does in a step, exactly as in torch's runtime.

    Args:
        ranks: of the pipeline; at least 2.
        microbatches: that the schedule can run with.
        ahead: microbatches in flight per stage of an eager schedule; by default as in 1F1B.
        deferred: gradients of weights that each stage of eager zero bubble defers; by default
            one more on each.
    """
    flying = None if ahead is None else tuple(ahead)
    most = None if deferred is None else tuple(deferred)
    return _make(schedule, ranks, microbatches, stages_per_rank, flying, most)


@lru_cache(maxsize=32)  # a search walks the same one with every split that it tries
def _make(
    schedule: ScheduleName,
    ranks: int,
    microbatches: int,
    stages_per_rank: int,
    ahead: tuple[int, ...] | None,
    deferred: tuple[int, ...] | None,
) -> tuple[Actions, ...]:
    stages = stages_of(schedule, ranks, stages_per_rank)
    match schedule:
        case "eager-1f1b":
            return eager(ahead or range(ranks, 0, -1), microbatches)
        case "eager-zero-bubble":
            flying, most = ahead or range(ranks, 0, -1), deferred or range(ranks)
            return eager_zero_bubble(flying, most, microbatches)
        case "gpipe":
            return gpipe(ranks, microbatches)
        case "1f1b":
            return one_f_one_b(ranks, microbatches)
        case "looped-bfs":
            return looped_bfs(stages, microbatches)
        case "interleaved-1f1b":
            return interleaved(stages, microbatches)
        case "interleaved-zero-bubble":
            return interleaved(stages, microbatches, splits_backward=True)
        case "zbv":
            return zbv(ranks, microbatches)
        case "dualpipev":
            return dualpipe_v(ranks, microbatches)
