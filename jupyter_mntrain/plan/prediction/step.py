"""Step prediction: how long a step takes, which ranks idle, and what limits it. Pure."""

from __future__ import annotations

import heapq
import math
import sys
from bisect import bisect_left
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from jupyter_mntrain.families import parameters, shape_of
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.records.plan import DeviceSpeed, LinkSpeed
from jupyter_mntrain.plan.prediction.simulator import (
    FREE,
    NOTHING_CODED,
    SOCKET_BYTES,
    CodingTimes,
    LinkTimes,
    Pair,
    Simulated,
    StageTimes,
    simulate,
)
from jupyter_mntrain.plan.prediction.speeds import decoding_s, encoding_s
from jupyter_mntrain.recipe.instructions import (
    Counts,
    StageAction,
    Stages,
    choose_counts,
    make_order,
    stages_of,
    zero_bubble_slots,
)
from jupyter_mntrain.recipe.layout import Layout, lay_out, make_grid
from jupyter_mntrain.recipe.memory import (
    WIDTHS,
    Config,
    StageShape,
    adapter_values,
    end_values,
    gradient_width,
    saved_bytes,
    trained_parameters,
    trains_head,
)
from jupyter_mntrain.recipe.schedules import KINDS, ScheduleName
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.recipe.transfers import (
    FORMATS,
    Format,
    Formats,
    boundary_transfers,
    wire_bytes,
)
from jupyter_mntrain.telemetry.formulas import (
    FILLED,
    FORWARD_AND_BACKWARD,
    head_flops_per_token,
    layer_flops_per_token,
    stage_flops_per_token,
)

# Costs: FLOPs and memory traffic of a stage per microbatch, from recipe and config alone. Pure.


class StageCost(Record, frozen=True):
    """The cost of one stage for one microbatch.

    Args:
        forward: FLOPs of the forward pass, with the loss on the last stage.
        inputs: FLOPs of the gradients of inputs.
        weights: FLOPs of the gradients of weights.
        again: FLOPs of what is recomputed in the backward pass.
        saved_bytes: that the forward pass keeps for the backward pass, if nothing is recomputed.
        again_bytes: that are written again in the backward pass.
        layers: of the stage.
    """

    forward: float
    inputs: float
    weights: float
    again: float
    saved_bytes: float
    again_bytes: float = 0.0
    layers: int = 0

    def times(self, speed: DeviceSpeed) -> StageTimes:
        """Return the stage's seconds on a device."""
        bytes_per_s = speed.layer_bytes_per_s or speed.bytes_per_s
        pass_s = self.saved_bytes / bytes_per_s if bytes_per_s else 0.0
        again_s = 2 * self.again_bytes / bytes_per_s if bytes_per_s else 0.0
        overhead_s = self.layers * speed.overhead_s

        def seconds(flops: float, passes: float, overheads: float) -> float:
            """Args: passes: over what is saved."""
            return flops / speed.flops_per_s + passes * pass_s + overheads * overhead_s

        # Each saved value is written once and read by the next operation; on the way back, it and
        # its gradient are read and the gradient of its input is written.
        return StageTimes(
            forward=seconds(self.forward, 2, 1),
            backward=again_s + seconds(self.again + self.inputs + self.weights, 3, 2),
            inputs=again_s + seconds(self.again + self.inputs, 2, 1),
            weights=seconds(self.weights, 1, 1),
        )


TORCH_SPLIT: Final = 1.36
"""How much longer two halves of a backward pass take than the whole, where torch splits it
(``stage_backward_input`` and ``_weight``): measured on two cores, 24 % more computing in all."""

DEFERRED_COST: Final = 1.02
"""How much longer gradients of weights take if they are deferred; measured on two cores, 0 to 7 %
more computing in all."""


def times_under(
    schedule: ScheduleName, cost: StageCost, speed: DeviceSpeed, *, is_first: bool
) -> StageTimes:
    """Return a stage's seconds on a device, with the extra cost of split backward passes."""
    times, kind = cost.times(speed), KINDS[schedule]
    if kind.defers:
        return times._replace(weights=DEFERRED_COST * times.weights)
    if kind.splits_backward and is_first:
        # Nobody waits for gradients of the first stage's inputs, and torch computes a whole
        # backward pass in place of those of its weights.
        return times._replace(inputs=0.0, weights=times.backward)
    if kind.splits_backward:
        return times._replace(
            inputs=TORCH_SPLIT * times.inputs, weights=TORCH_SPLIT * times.weights
        )
    return times


def stage_costs(recipe: Recipe, config: Config, layout: Layout) -> list[StageCost]:
    """Return the cost of every stage.

    A multiply-add is two FLOPs; a matrix product costs as much forward as for the gradient of its
    input and for that of its weights; attention has no weights, and two gradients of inputs (PaLM,
    arXiv 2204.02311, appendix B).
    """
    return [_cost(recipe, config, layout, stage) for stage in range(len(layout.stages))]


def _cost(recipe: Recipe, config: Config, layout: Layout, stage: int) -> StageCost:
    return stage_cost(
        recipe,
        config,
        len(layout.stages[stage]),
        is_first=stage == 0,
        is_last=stage == layout.last_stage,
    )


def stage_cost(
    recipe: Recipe, config: Config, layers: int, *, is_first: bool, is_last: bool
) -> StageCost:
    """Return the cost of a stage of ``layers`` layers."""
    shape, length = shape_of(config), recipe.data.sequence_length
    tokens = recipe.microbatch_size * length
    products = layers * layer_flops_per_token(shape, 0.0) / FORWARD_AND_BACKWARD
    attended = layers * layer_flops_per_token(shape, length) / FORWARD_AND_BACKWARD - products
    head = head_flops_per_token(shape) / FORWARD_AND_BACKWARD if is_last else 0.0
    beside = adapter_values(recipe, config)
    # A multiply-add is 2 FLOPs; next to adapters no gradients of frozen weights are computed.
    low = 2.0 * layers * (beside or 0)
    of_layers = products if beside is None else low
    again = {"none": 0.0, "full": products + attended + low, "selective": 0.0}
    kept = StageShape(
        parameters=parameters(config, layers, is_first=is_first, is_last=is_last),
        layers=layers,
        has_first=is_first,
        has_last=is_last,
        in_flight=1,
    )
    section = msgspec.structs.replace(recipe.memory, checkpointing="none")
    keeping = msgspec.structs.replace(recipe, memory=section)
    saved = saved_bytes(shape, keeping, kept)
    return StageCost(
        forward=tokens * (products + attended + head + low),
        inputs=tokens * (products + 2 * attended + head + low),
        weights=tokens * (of_layers + (head if trains_head(recipe, config) else 0.0)),
        again=tokens * again[recipe.checkpointing] * recipe.recomputed(layers) / max(1, layers),
        saved_bytes=saved,
        again_bytes=saved - saved_bytes(shape, recipe, kept),
        layers=layers,
    )


# Boundaries: what neighboring stages send each other for a microbatch, as it is sent. Pure.


class Boundary(NamedTuple):
    """A boundary between two stages, and its messages for one microbatch.

    Args:
        ranks: of the stage before it and of the one after it, in their pipeline.
        formats: in which they are sent.
        forward: bytes of the activation, as it is sent.
        backward: bytes of its gradient, as it is sent.
        plain: bytes of either without compression.
    """

    ranks: Pair
    formats: Formats
    forward: int
    backward: int
    plain: int


def boundaries(recipe: Recipe, config: Config, nodes: Sequence[Hashable]) -> tuple[Boundary, ...]:
    """Return the boundaries of a pipeline's stages, in order.

    Args:
        recipe: where it lists transfers for other stages than there are, which is refused
            elsewhere, some are left out.
        nodes: of each rank of the pipeline.
    """
    if len(nodes) == 1:
        return ()
    stages = stages_of(recipe.schedule, len(nodes), recipe.stages_per_rank)
    ranks = [stages.rank_of(stage) for stage in range(stages.number)]
    transfers = boundary_transfers(recipe.transfer, ranks, nodes)
    tokens = recipe.microbatch_size * recipe.data.sequence_length
    hidden, width = config["hidden_size"], WIDTHS[recipe.dtype]

    def size(form: Format) -> int:
        return wire_bytes(form, tokens, hidden, width)

    plain = size("none")
    alike = {
        one: Boundary((0, 0), formats, size(formats.forward), size(formats.backward), plain)
        for one, formats in FORMATS.items()
    }
    pairs = zip(pairwise(ranks), transfers, strict=False)
    return tuple(alike[transfer]._replace(ranks=pair) for pair, transfer in pairs)


def coding_times(found: Sequence[Boundary], stage: int, speed: DeviceSpeed) -> CodingTimes:
    """Return the seconds per microbatch in which a stage decodes and encodes its messages."""
    times, plain = NOTHING_CODED, FORMATS["none"]
    if stage > 0 and (one := found[stage - 1]).formats != plain:
        times = times._replace(
            activation_in=decoding_s(speed, one.formats.forward, one.plain),
            gradient_out=encoding_s(speed, one.formats.backward, one.plain),
        )
    if stage < len(found) and (one := found[stage]).formats != plain:
        times = times._replace(
            activation_out=encoding_s(speed, one.formats.forward, one.plain),
            gradient_in=decoding_s(speed, one.formats.backward, one.plain),
        )
    return times


def message_times(
    found: Sequence[Boundary], link: Callable[[int, int], LinkTimes]
) -> tuple[list[LinkTimes], list[LinkTimes]]:
    """Return the times of the activation and of the gradient that cross each boundary.

    Args:
        link: from rank to rank, of a message without compression.
    """

    def times(sender: int, receiver: int, share: float) -> LinkTimes:
        plain = link(sender, receiver)
        return plain._replace(occupied=share * plain.occupied)

    return (
        [times(*one.ranks, one.forward / one.plain) for one in found],
        [times(*one.ranks[::-1], one.backward / one.plain) for one in found],
    )


def plain_times(link: LinkSpeed, found: Sequence[Boundary], *, over_gloo: bool) -> LinkTimes:
    """Return the times of a message without compression on a link between nodes."""
    held = SOCKET_BYTES / link.bytes_per_s if over_gloo else 0.0
    size = found[0].plain if found else 0
    return LinkTimes(link.latency_s, size / link.bytes_per_s, held)


def shares_of(found: Sequence[Boundary]) -> Callable[[StageAction], float]:
    """Return the function that tells the share of its bytes of which a message consists, by its
    receiver's action, as for :func:`~jupyter_mntrain.plan.prediction.simulator.simulate`.
    """

    def share(received: StageAction) -> float:
        if received.kind == "RECV_F":
            one = found[received.stage - 1]
            return one.forward / one.plain
        one = found[received.stage]
        return one.backward / one.plain

    return share


# Traffic: computes the bytes between nodes in one optimizer step. Pure.


Shapes = Sequence[tuple[int, ...]]


def step_traffic(
    recipe: Recipe, config: Config, nodes: Sequence[str]
) -> dict[tuple[str, str], float]:
    """Compute the bytes from node to node in one step of a pipeline, compressed as they are sent.

    Between neighboring stages, activations go forward and their gradients back.

    Args:
        nodes: the node of each rank of the pipeline, in order.

    Returns:
        ``(sender, receiver) → bytes``; stages on the same node do not count.
    """
    messages = recipe.train.accumulation * recipe.microbatches
    found: dict[tuple[str, str], float] = {}
    for one in boundaries(recipe, config, nodes):
        here, there = (nodes[rank] for rank in one.ranks)
        if here == there:
            continue
        for pair, size in (((here, there), one.forward), ((there, here), one.backward)):
            found[pair] = found.get(pair, 0.0) + messages * size
    return found


def ring_traffic(nodes: Sequence[str], size_bytes: float) -> dict[tuple[str, str], float]:
    """Compute the bytes from node to node for one ring all-reduce of replicas' gradients.

    Args:
        nodes: the node of each replica.
        size_bytes: of one replica's gradients.
    """
    count = len(nodes)
    each = 2 * size_bytes * (count - 1) / count
    found: dict[tuple[str, str], float] = {}
    for node, after in zip(nodes, [*nodes[1:], *nodes[:1]], strict=True):
        if node != after:
            found[node, after] = found.get((node, after), 0.0) + each
    return found


class Passed(NamedTuple):
    """The data that goes around a ring of shards once in a step.

    Args:
        gathered: bytes of weights.
        scattered: bytes of gradients.
        gathers, scatters: how many there are: one for each layer, and one for the rest of a stage.
    """

    gathered: float
    scattered: float
    gathers: int
    scatters: int

    @property
    def size(self) -> float:
        """The total bytes."""
        return self.gathered + self.scattered


def passed_by(
    recipe: Recipe, weights: Shapes, trained: Shapes, vocabulary_size: int, layers: int, stages: int
) -> Passed:
    """Return the data that shards gather and scatter for these layers and stages.

    Weights are gathered before the first microbatch of each pass over the schedule, and gradients
    scattered after its last. With ``reshard_after_forward``, all is done for each microbatch, and
    layers are gathered twice.

    Args:
        weights: shapes of all parameters.
        trained: of those that have gradients.
    """
    width, again = WIDTHS[recipe.dtype], recipe.data_parallel.reshard_after_forward
    passes = recipe.train.accumulation * (recipe.microbatches if again else 1)
    gathered = _values(weights)
    if again:
        gathered += gathered - end_values(weights, vocabulary_size)
    return Passed(
        gathered=passes * gathered * width,
        scattered=passes * _values(trained) * gradient_width(recipe),
        gathers=passes * (layers * (1 + again) + stages),
        scatters=passes * (layers + stages),
    )


def shard_bytes(recipe: Recipe, config: Config, layout: Layout, place: int) -> int:
    """Return the bytes that a rank sends to the other shards in a step; it receives as many.

    Args:
        place: in its pipeline.
    """
    shards = recipe.data_parallel.shards
    return int(passed_in_step(recipe, config, layout, place).size * (shards - 1) / shards)


def passed_in_step(recipe: Recipe, config: Config, layout: Layout, place: int) -> Passed:
    """Return the data that shards of this place in a pipeline gather and scatter."""
    weights: list[tuple[int, ...]] = []
    trained: list[tuple[int, ...]] = []
    stages = layout.stages_of(place)
    for stage in stages:
        layers, last = len(layout.stages[stage]), layout.last_stage
        ends = {"is_first": stage == 0, "is_last": stage == last}
        weights += parameters(config, layers, **ends)
        trained += trained_parameters(recipe, config, layers, **ends)
    layers = sum(len(layout.stages[stage]) for stage in stages)
    return passed_by(recipe, weights, trained, config["vocab_size"], layers, len(stages))


def _values(shapes: Shapes) -> int:
    return sum(map(math.prod, shapes))


# Step time: the least that a step can take, from FLOPs, peaks and links. Pure; no torch.


class LeastStep(Record, frozen=True):
    """A lower bound of a step's duration. Real steps take longer: no device reaches its peak.

    Args:
        seconds: of the slowest pipeline, with the idle slots of its schedule.
        tokens_per_s: of all pipelines, at most.
        rank: computes longest; ``None`` if a link sets the pace.
    """

    seconds: float
    tokens_per_s: float
    rank: int | None


def least_step(
    recipe: Recipe, config: Config, peaks: Sequence[float], *, link_s: float = 0.0
) -> LeastStep:
    """Bound a step's duration from below.

    The rank that computes longest, plus the slots in which the schedule lets it wait for one
    microbatch of the others; with equal ranks that is ``compute / (1 - bubble)``. Recomputation,
    the optimizer and evaluation count nothing.

    Args:
        recipe: one that can run on this number of ranks.
        peaks: FLOPs per second of each rank's device.
        link_s: time that the busiest link needs for the bytes of a step.
    """
    costs = compute_s(recipe, config, peaks)
    grid = make_grid(recipe, len(peaks))
    slots = recipe.microbatches * recipe.stages_per_rank
    open_share = 1.0 - FILLED.get(recipe.schedule, 0.0)
    found = (0.0, 0)
    for ranks in grid.pipelines:
        slowest = max(ranks, key=lambda rank: costs[rank])
        others = sum(costs[rank] for rank in ranks) - costs[slowest]
        found = max(found, (costs[slowest] + open_share * others / slots, slowest))
    seconds, rank = found
    is_link = link_s > seconds
    longest = max(seconds, link_s)
    return LeastStep(
        seconds=longest,
        tokens_per_s=recipe.tokens_per_step / longest,
        rank=None if is_link else rank,
    )


def compute_s(recipe: Recipe, config: Config, peaks: Sequence[float]) -> list[float]:
    """Return the seconds that each rank computes in a step at its device's peak."""
    shape, ranks = shape_of(config), len(peaks)
    layout = lay_out(recipe, ranks, shape.layers)
    grid = make_grid(recipe, ranks)
    tokens = recipe.tokens_per_step / recipe.data_parallel.width
    return [
        tokens
        * stage_flops_per_token(
            shape,
            recipe.data.sequence_length,
            layers=len(layout.layers_of(place)),
            has_head=layout.last_rank == place,
        )
        / peak
        for rank, peak in enumerate(peaks)
        for place in [grid.place_of(rank)]
    ]


# Split: divides layers among ranks of unlike speed so that the slowest is as fast as it can be.


class RankCost(NamedTuple):
    """The cost of a rank's share of the layers, in seconds per microbatch.

    Args:
        layer: each decoder layer.
        fixed: what it computes besides layers, such as the head.
        most: layers that fit into its memory.
    """

    layer: float
    fixed: float = 0.0
    most: int = 1 << 30

    def of(self, layers: int) -> float:
        return self.fixed + layers * self.layer


def best_split(layers: int, costs: Sequence[RankCost]) -> tuple[int, ...] | None:
    """Return how many layers each rank gets, at least one each; ``None`` if they do not fit.

    Of the splits whose slowest rank is fastest, the one that takes all ranks together the least
    time. The duration of the slowest rank is found by bisection among all that are possible; then
    layers go to the ranks that compute them fastest, as long as none takes longer.
    """
    if any(cost.most < 1 for cost in costs) or layers < len(costs):
        return None
    if sum(min(cost.most, layers) for cost in costs) < layers:
        return None
    durations = sorted(
        {cost.of(own) for cost in costs for own in range(1, min(cost.most, layers) + 1)}
    )
    slowest = durations[
        bisect_left(durations, x=True, key=lambda limit: _taken(layers, costs, limit) >= layers)
    ]
    split = [1] * len(costs)
    waiting = [(cost.layer, cost.of(2), rank) for rank, cost in enumerate(costs)]
    heapq.heapify(waiting)
    left = layers - len(costs)
    while left:
        layer, duration, rank = heapq.heappop(waiting)
        if duration <= slowest and split[rank] < costs[rank].most:
            split[rank] += 1
            left -= 1
            heapq.heappush(waiting, (layer, costs[rank].of(split[rank] + 1), rank))
    return tuple(split)


def _taken(layers: int, costs: Sequence[RankCost], limit: float) -> int:
    """Return how many layers all ranks together compute within a duration; 0 if one can
    take none.
    """
    total = 0
    for cost in costs:
        if cost.of(1) > limit:
            return 0
        most = min(cost.most, layers)
        own = most if cost.layer <= 0 else min(most, int((limit - cost.fixed) / cost.layer) + 1)
        total += own if cost.of(own) <= limit else own - 1
    return total


# Chain: the length of a step with one stage per rank, without a walk over events. Pure.
#
# Equal to :func:`~jupyter_mntrain.plan.prediction.simulator.simulate` over the orders of eager 1F1B
# and eager zero bubble (a test holds them equal), and some twenty times as fast: on each link every
# message follows the one before, so that each time follows from times that are known already.


LATER = sys.maxsize
"""A turn that is not known yet."""

ROUNDS = 6
"""Times its number of stages that a pipeline runs before its pace is taken for steady."""

FEWEST = 64
"""Microbatches from which on a pace is taken, even with few stages: what is ahead at the begin
hides a slower pace for some time.
"""


def chain_seconds(
    counts: Counts,
    times: Sequence[StageTimes],
    onward: Sequence[LinkTimes],
    back: Sequence[LinkTimes],
    microbatches: int,
) -> float:
    """Return the seconds of a step with one stage per rank.

    Args:
        onward: from each stage to the next; one fewer than stages.
        back: from each stage's next one to it.
    """
    return _Chain(counts, times, onward, back, microbatches).run()


def steady_seconds(
    counts: Counts,
    times: Sequence[StageTimes],
    onward: Sequence[LinkTimes],
    back: Sequence[LinkTimes],
    microbatches: int,
) -> float:
    """Like :func:`chain_seconds`, but extrapolate a long step from its first part.

    Once all stages are busy, each further microbatch takes the same time. It is taken from two
    lengths of which the shorter fills the pipeline :data:`ROUNDS` times.
    """
    filled = max(FEWEST, ROUNDS * len(times), 2 * max(counts.ahead))
    further = filled + max(4, len(times) // 2)
    if microbatches <= 2 * further:
        return chain_seconds(counts, times, onward, back, microbatches)
    shorter, longer = (
        chain_seconds(counts, times, onward, back, count) for count in (filled, further)
    )
    return longer + (longer - shorter) / (further - filled) * (microbatches - further)


@lru_cache(maxsize=256)  # a search asks for the same ones with every split that it tries
def _slots(ahead: int, deferred: int, microbatches: int) -> tuple[tuple[str, int], ...]:
    """Return a stage's actions in order, each as its kind and the number of the microbatch."""
    slots = zero_bubble_slots(0, ahead, deferred, microbatches)
    return tuple((action.kind, action.microbatch) for (action,) in slots)


class _Chain:
    """Advances every stage as far as its neighbors allow.

    The order in which ranks begin to receive is that of
    :func:`~jupyter_mntrain.recipe.instructions.with_messages`, which takes one slot of each rank
    in turn: ``turns`` counts them. Gradients of weights take none, and go after all messages:
    theirs is the turn of the slot that follows, once that is known.
    """

    def __init__(
        self,
        counts: Counts,
        times: Sequence[StageTimes],
        onward: Sequence[LinkTimes],
        back: Sequence[LinkTimes],
        microbatches: int,
    ) -> None:
        self._stages = len(times)
        self._times = times
        self._links = {"F": [LinkTimes(), *onward], "B": [*back, LinkTimes()]}
        self._orders = [
            _slots(ahead, kept, microbatches)
            for ahead, kept in zip(counts.ahead, counts.deferred, strict=True)
        ]
        # Of each stage: end and turn of every slot, and of what its neighbors wait for.
        self._ends: list[list[float]] = [[] for _ in times]
        self._turns: list[list[int]] = [[] for _ in times]
        self._done: dict[str, list[list[tuple[float, int]]]] = {
            kind: [[] for _ in times] for kind in "FB"
        }
        self._posted = {kind: [0] * len(times) for kind in "FB"}
        self._free = {kind: [0.0] * len(times) for kind in "FB"}

    def run(self) -> float:
        waiting = list(range(self._stages - 1, -1, -1))
        while waiting:
            stage = waiting.pop()
            self._advance(stage)
            for other in (stage - 1, stage + 1):
                if 0 <= other < self._stages and other not in waiting and self._can_go_on(other):
                    waiting.append(other)
        return max(ends[-1] for ends in self._ends)

    def _can_go_on(self, stage: int) -> bool:
        order, at = self._orders[stage], len(self._ends[stage])
        if at == len(order):
            return False
        kind, microbatch = order[at]
        if kind == "F":
            return stage == 0 or len(self._done["F"][stage - 1]) > microbatch
        if kind == "W":
            return True
        return stage == self._stages - 1 or len(self._done["B"][stage + 1]) > microbatch

    def _advance(self, stage: int) -> None:
        order, ends, turns = self._orders[stage], self._ends[stage], self._turns[stage]
        forward, backward, inputs, weights, coding = self._times[stage]
        last = self._stages - 1
        now = ends[-1] if ends else 0.0
        turn = next((one for one in reversed(turns) if one != LATER), -1)
        activations = self._done["F"][stage - 1] if stage else None
        gradients = self._done["B"][stage + 1] if stage < last else None
        sent, returned = self._done["F"][stage], self._done["B"][stage]
        for kind, microbatch in order[len(ends) :]:
            if kind == "W":
                now += weights
                ends.append(now)
                turns.append(LATER)
                continue
            turn += 1
            if kind == "F":
                if activations is not None:
                    if len(activations) <= microbatch:
                        return
                    left, its_turn = activations[microbatch]
                    now = max(now, self._arrival("F", stage, left, its_turn))
                    turn = max(turn, its_turn)
                now += coding.activation_in + forward + coding.activation_out
                sent.append((now, turn))
            else:
                if gradients is not None:
                    if len(gradients) <= microbatch:
                        return
                    left, its_turn = gradients[microbatch]
                    now = max(now, self._arrival("B", stage, left, its_turn + 1))
                    turn = max(turn, its_turn + 1)
                now += coding.gradient_in + (inputs if kind == "I" else backward)
                now += coding.gradient_out
                returned.append((now, turn))
            for place in range(len(turns) - 1, -1, -1):
                if turns[place] != LATER:
                    break
                turns[place] = turn
            ends.append(now)
            turns.append(turn)

    def _arrival(self, kind: str, stage: int, sent_s: float, before: int) -> float:
        """Return when a message arrives.

        Args:
            before: the turn before which its receiver begins to receive it.
        """
        turns, at = self._turns[stage], self._posted[kind][stage]
        while at < len(turns) and turns[at] < before:
            at += 1
        self._posted[kind][stage] = at
        posted_s = self._ends[stage][at - 1] if at else 0.0
        latency, occupied, _ = self._links[kind][stage]
        left = max(sent_s, posted_s + latency, self._free[kind][stage]) + occupied
        self._free[kind][stage] = left
        return left + latency


FULL = 0.95
"""Share of a step from which on a link or a rank that is busy sets the pace."""


Links = Mapping[Pair, LinkSpeed]
"""Links by sender's and receiver's rank; a missing pair is on one node."""


class PredictedStep(Record, frozen=True):
    """A predicted step of one pipeline, without the optimizer.

    Args:
        seconds: of all of its microbatches.
        computing_s: of each rank.
        bubbles: share of the step in which each rank does not compute.
        links: share of the step in which each link is busy.
        in_flight: microbatches of each stage; empty where the schedule fixes them.
        bottleneck: what sets the pace, in words.
    """

    seconds: float
    computing_s: tuple[float, ...]
    bubbles: tuple[float, ...]
    links: dict[Pair, float]
    in_flight: tuple[int, ...]
    bottleneck: str


def predict_step(
    recipe: Recipe,
    config: Config,
    speeds: Sequence[DeviceSpeed],
    links: Links,
    *,
    nodes: Sequence[str] | None = None,
    over_gloo: bool = False,
) -> tuple[PredictedStep, Simulated]:
    """Predict a step by simulating the order that the trainer will run.

    Args:
        recipe: one that can run on this number of ranks; one pipeline of it is predicted.
        speeds: of the device of each rank of that pipeline.
        nodes: of each rank, whose links share its interface; ``None``: links are apart.
        over_gloo: whether ranks send over Gloo, as CPUs do, and not over NCCL.

    Returns:
        The prediction, and the walk of one pass over the schedule, of which a step has as many as
        it accumulates gradients.
    """
    shape = shape_of(config)
    layout = lay_out(recipe, len(speeds) * recipe.data_parallel.width, shape.layers)
    costs = stage_costs(recipe, config, layout)
    crossed = boundaries(recipe, config, nodes or _apart(links, layout.world_size))
    times = [
        times_under(
            recipe.schedule, cost, speeds[layout.rank_of(stage)], is_first=stage == 0
        )._replace(coding=coding_times(crossed, stage, speeds[layout.rank_of(stage)]))
        for stage, cost in enumerate(costs)
    ]

    def link(sender: int, receiver: int) -> LinkTimes:
        found = links.get((sender, receiver))
        return FREE if found is None else plain_times(found, crossed, over_gloo=over_gloo)

    counts = _counts(recipe, times, crossed, link)
    walked = _walk(recipe, layout, times, link, crossed, counts, nodes, over_gloo=over_gloo)
    passes = recipe.train.accumulation
    ranks = range(layout.world_size)
    return (
        PredictedStep(
            seconds=passes * walked.seconds,
            computing_s=tuple(passes * walked.computing_s(rank) for rank in ranks),
            bubbles=tuple(map(walked.bubble, ranks)),
            links={pair: walked.busy(pair) for pair in walked.messages if pair in links},
            in_flight=counts.ahead if counts else (),
            bottleneck=_bottleneck(walked, links),
        ),
        walked,
    )


def _apart(links: Links, ranks: int) -> list[int]:
    """Return a node for each rank, so that links are between nodes."""
    nodes = [0]
    for rank in range(1, ranks):
        nodes.append(rank if (rank - 1, rank) in links else nodes[-1])
    return nodes


def _counts(
    recipe: Recipe,
    times: Sequence[StageTimes],
    crossed: Sequence[Boundary],
    link: Callable[[int, int], LinkTimes],
) -> Counts | None:
    """Return the counts of each stage that the trainer will choose; ``None`` if they are fixed."""
    if not KINDS[recipe.schedule].is_eager:
        return None
    busy = [one.forward + one.backward + one.coding.seconds for one in times]
    round_trips = [
        there.seconds + back.seconds
        for there, back in zip(*message_times(crossed, link), strict=True)
    ]
    most = [recipe.microbatches] * len(times)
    return choose_counts(recipe, busy, round_trips, most)


def _walk(
    recipe: Recipe,
    layout: Layout,
    times: Sequence[StageTimes],
    link: Callable[[int, int], LinkTimes],
    crossed: Sequence[Boundary],
    counts: Counts | None,
    nodes: Sequence[str] | None,
    *,
    over_gloo: bool,
) -> Simulated:
    schedule, microbatches = recipe.schedule, recipe.microbatches
    if layout.world_size == 1:
        each = sum(one.forward + one.backward for one in times)
        alone = StageTimes(each, 0.0, 0.0, 0.0)
        order = make_order("eager-1f1b", 1, microbatches)
        return simulate(order, Stages(1), [alone], link)
    order = make_order(
        schedule,
        layout.world_size,
        microbatches,
        stages_per_rank=recipe.stages_per_rank,
        ahead=counts.ahead if counts else None,
        deferred=counts.deferred if counts else None,
    )
    stages = stages_of(schedule, layout.world_size, recipe.stages_per_rank)
    kind = KINDS[schedule]
    is_single = kind.most == 1 and not kind.is_eager
    return simulate(
        order,
        stages,
        times,
        link,
        share_of=shares_of(crossed),
        is_batched=is_single,
        node_of=nodes.__getitem__ if nodes else None,
        is_one_connection=over_gloo and is_single,
    )


def _bottleneck(walked: Simulated, links: Links) -> str:
    shares = {rank: 1.0 - walked.bubble(rank) for rank in range(len(walked.computing))}
    return name_bottleneck(
        shares, {pair: walked.busy(pair) for pair in links if pair in walked.messages}
    )


def name_bottleneck(computing: Mapping[int, float], busy: Mapping[Pair, float]) -> str:
    """Name the link or rank that is busiest, and the idle time if neither is fully used.

    Args:
        computing: share of the step in which each rank computes, by rank.
        busy: share of the step in which each link between nodes is busy, by ranks.
    """
    slowest = max(computing, key=computing.__getitem__)
    share = computing[slowest]
    busiest = max(busy, key=busy.__getitem__, default=None)
    on_link = 0.0 if busiest is None else busy[busiest]
    if busiest is not None and on_link > max(share, FULL):
        return f"the link from rank {busiest[0]} to rank {busiest[1]}"
    if share >= FULL:
        return f"rank {slowest}'s device"
    if busiest is not None and on_link > share:
        return f"waiting, most of it for the link from rank {busiest[0]} to rank {busiest[1]}"
    return f"none; rank {slowest}, the busiest, computes {share:.0%} of the step"
