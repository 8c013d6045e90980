"""Pricing: predicts time and memory of one setup on a chain of places, with its best
split. Pure.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate, combinations, pairwise
from math import ceil, comb, inf
from typing import Final, NamedTuple, Self

import msgspec

from jupyter_mntrain.families import parameters
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.records.plan import DeviceSpeed, LinkSpeed
from jupyter_mntrain.plan.choosing.devices import Chain, Device, LinkBetween, slowest_link
from jupyter_mntrain.plan.prediction.simulator import (
    FREE,
    CodingTimes,
    LinkTimes,
    Pair,
    Simulated,
    StageTimes,
    simulate,
)
from jupyter_mntrain.plan.prediction.step import (
    Passed,
    RankCost,
    best_split,
    boundaries,
    chain_seconds,
    coding_times,
    message_times,
    passed_in_step,
    plain_times,
    shares_of,
    stage_cost,
    steady_seconds,
    times_under,
)
from jupyter_mntrain.recipe.combinations import check_memory
from jupyter_mntrain.recipe.instructions import (
    Actions,
    Counts,
    Stages,
    choose_counts,
    make_order,
    stages_of,
)
from jupyter_mntrain.recipe.layout import Layout, lay_out
from jupyter_mntrain.recipe.memory import (
    CPU_OVERHEAD,
    WIDTHS,
    Config,
    gpu_overhead,
    gradient_width,
    optimizer_bytes,
    place_forecast,
    trained_parameters,
)
from jupyter_mntrain.recipe.parse import check
from jupyter_mntrain.recipe.schedules import KINDS, ScheduleName
from jupyter_mntrain.recipe.sections import Checkpointing, Recipe
from jupyter_mntrain.recipe.stored import PLANNED, is_open

# Setups: combinations of schedule, microbatches and recomputation that a recipe allows. Pure.


_SIMPLEST_FIRST: Final[tuple[ScheduleName, ...]] = (
    "eager-1f1b",
    "1f1b",
    "eager-zero-bubble",
    "gpipe",
    "interleaved-1f1b",
    "looped-bfs",
    "zbv",
    "interleaved-zero-bubble",
    "dualpipev",
)


class Setup(Record, frozen=True):
    """One combination of schedule, microbatches and checkpointing.

    Args:
        recipe: with it; the split and counts are those that were given, or open.
    """

    recipe: Recipe

    @property
    def schedule(self) -> ScheduleName:
        return self.recipe.schedule

    @property
    def microbatches(self) -> int:
        return self.recipe.microbatches

    @property
    def checkpointing(self) -> Checkpointing:
        return self.recipe.checkpointing

    @property
    def settings(self) -> tuple[ScheduleName, int, Checkpointing]:
        """Those of them that differ between setups of one recipe."""
        return self.schedule, self.microbatches, self.checkpointing

    @property
    def defers(self) -> bool:
        """Whether gradients of weights are deferred, with one stage per rank."""
        return KINDS[self.schedule].defers

    @property
    def is_eager(self) -> bool:
        """Whether microbatches in flight are chosen for each stage."""
        return KINDS[self.schedule].is_eager

    @property
    def simplicity(self) -> tuple[int, int, int]:
        """Lower is simpler: no recomputation, a plain schedule, few microbatches."""
        again = ("none", "selective", "full").index(self.checkpointing)
        return again, _SIMPLEST_FIRST.index(self.schedule), self.microbatches


def open_settings(recipe: Recipe) -> frozenset[str]:
    """Return the settings that a recipe leaves to the plan."""
    return frozenset(name for name in PLANNED if is_open(recipe, name))


def make_setups(
    recipe: Recipe,
    ranks: int,
    layers: int,
    opened: Collection[str],
    *,
    splits_backward: bool = True,
) -> list[Setup]:
    """Return every combination that can run on this number of ranks.

    Args:
        ranks: of all pipelines.
        layers: of the model.
        opened: settings to choose, of :data:`PLANNED`.
        splits_backward: whether torch can split the model's backward pass.

    Raises:
        RecipeError: none can.
    """
    found, refusals = [], []
    for setup in _combinations(recipe, ranks, opened):
        is_split = KINDS[setup.schedule].splits_backward
        if is_split and not splits_backward and "pipeline.schedule" in opened:
            continue
        try:
            check_memory(setup.recipe)
            check(setup.recipe, ranks, layers=layers)
        except RecipeError as error:
            refusals.append(error)
        else:
            found.append(setup)
    if not found:
        raise refusals[0]
    return found


def replaced(recipe: Recipe, **changes: object) -> Recipe:
    """Return a recipe with other fields of its pipeline, or another ``checkpointing``."""
    again = changes.pop("checkpointing", recipe.memory.checkpointing)
    return msgspec.structs.replace(
        recipe,
        pipeline=msgspec.structs.replace(recipe.pipeline, **changes),
        memory=msgspec.structs.replace(recipe.memory, checkpointing=again),
    )


def _combinations(recipe: Recipe, ranks: int, opened: Collection[str]) -> Iterator[Setup]:
    width = recipe.data_parallel.width
    schedules = [recipe.schedule]
    if "pipeline.schedule" in opened:
        schedules = ["eager-1f1b"] if ranks == width else list(KINDS)
    counts = [recipe.microbatches]
    if "pipeline.microbatches" in opened:
        share = recipe.train.batch_size // (width * recipe.train.accumulation)
        counts = [one for one in range(1, share + 1) if share % one == 0] or [1]
    kept = [recipe.checkpointing]
    if "memory.checkpointing" in opened:
        kept = ["none", "selective", "full"]
    fixed = {"split": "even"} if "pipeline.split" in opened else {}
    for schedule in schedules:
        for count in counts:
            for checkpointing in kept:
                settings = {"schedule": schedule, "microbatches": count, **fixed}
                yield Setup(replaced(recipe, checkpointing=checkpointing, **settings))


# Room: what each place of a pipeline needs of its memory, and how many layers fit. Pure.


class Shortfall(Record, frozen=True):
    """A place with too little memory.

    Args:
        place: in the pipeline.
    """

    place: int
    needed_bytes: float
    limit_bytes: float

    @property
    def missing_bytes(self) -> float:
        return self.needed_bytes - self.limit_bytes


class Room:
    """The memory that a setup needs on a chain, for any split and counts.

    Args:
        setup: whose split and counts are open, or given.
    """

    def __init__(self, setup: Setup, config: Config, chain: Chain) -> None:
        self._setup, self._config, self._chain = setup, config, chain
        self._own: list[tuple[int, ...]] = []
        self._known: dict[tuple[object, ...], float] = {}
        transfer = setup.recipe.pipeline.transfer
        self._sends_alike = isinstance(transfer, str) or len({*transfer}) == 1
        self.is_unlimited = all(place.memory_bytes is None for place in chain.places)

    def needed(self, split: Sequence[int], counts: Counts | None) -> list[float]:
        """Return the bytes that each place needs, by the recipe's estimate.

        Args:
            counts: where the schedule lets them be chosen.
        """
        layout = self._layout(split)
        return [self._place(layout, place, counts) for place in range(layout.world_size)]

    def on_host(self, split: Sequence[int], counts: Counts | None) -> list[float]:
        """Return the bytes that each rank of a place keeps in host memory, in addition to its
        GPU's.
        """
        layout, recipe = self._layout(split), self._with(counts)
        return [
            float(place_forecast(recipe, self._config, layout, number).host)
            if place.is_gpu
            else 0.0
            for number, place in enumerate(self._chain.places)
        ]

    def lack(self, split: Sequence[int], counts: Counts | None) -> Shortfall | None:
        """Return the place that lacks the most memory; ``None`` if all fit or their memory is
        unknown.
        """
        if self.is_unlimited:
            return None
        lacks = [
            Shortfall(number, size, place.memory_bytes)
            for number, (place, size) in enumerate(
                zip(self._chain.places, self.needed(split, counts), strict=True)
            )
            if place.memory_bytes is not None and size > place.memory_bytes
        ]
        return max(lacks, key=lambda lack: lack.missing_bytes, default=None)

    def most_layers(self, counts: Counts | None) -> list[float]:
        """Estimate how many layers fit into each place, as memory grows linearly with layers.

        May be below 1.
        """
        places = len(self._chain.places)
        if self.is_unlimited:
            return [inf] * places
        per_rank = self._setup.recipe.stages_per_rank if places > 1 else 1
        share = max(1, self._config["num_hidden_layers"] // (places * per_rank))
        here, more = (
            self.needed([count] * places * per_rank, counts) for count in (share, share + 1)
        )
        return [
            inf
            if place.memory_bytes is None
            else per_rank * share + per_rank * (place.memory_bytes - one) / max(other - one, 1.0)
            for place, one, other in zip(self._chain.places, here, more, strict=True)
        ]

    def _layout(self, split: Sequence[int]) -> Layout:
        recipe = replaced(self._setup.recipe, split=tuple(split))
        return lay_out(recipe, len(self._chain.indices), sum(split))

    def _place(self, layout: Layout, place: int, counts: Counts | None) -> float:
        if not self._own:
            self._own = [layout.stages_of(one) for one in range(layout.world_size)]
        own = tuple(len(layout.stages[stage]) for stage in self._own[place])
        held = None if counts is None else (counts.ahead[place], counts.deferred[place])
        # With the same counts and transfers, places between the first and the last are alike.
        is_inner = counts is not None and 0 < place < layout.world_size - 1 and self._sends_alike
        end = None if is_inner else place
        key = end, own, held, self._chain.places[place].is_gpu
        if key not in self._known:
            self._known[key] = self._estimated(layout, place, counts)
        return self._known[key]

    def _estimated(self, layout: Layout, place: int, counts: Counts | None) -> float:
        recipe = self._with(counts)
        estimate = place_forecast(recipe, self._config, layout, place)
        if not self._chain.places[place].is_gpu:  # its memory is the host's
            return float(estimate.total + estimate.host + CPU_OVERHEAD.total)
        is_tied = bool(self._config.get("tie_word_embeddings"))
        overhead = gpu_overhead(recipe, layout, place, estimate, is_tied=is_tied)
        return float(estimate.total + overhead.total)

    def _with(self, counts: Counts | None) -> Recipe:
        recipe = self._setup.recipe
        if counts is None:
            return recipe
        kept = counts.deferred if self._setup.defers else "auto"
        return replaced(recipe, in_flight=counts.ahead, deferred=kept)


# Update: the end of a step, in which gradients are summed and weights updated. Pure.
#
# Every byte that is read or written takes its share of the memory's bandwidth; arithmetic is free
# next to it. Gradients: read for their norm, read and written as they are clipped, read by the
# optimizer, written as they are cleared. Weights and the optimizer's state: read and written.
# Replicas sum gradients in a ring (each link carries ``2 (n - 1) / n`` of them); shards gather
# weights once and scatter gradients once (``(n - 1) / n`` each), layer by layer: each layer waits
# for its own messages. Over Gloo, shards send gradients to each other directly. Rings that use a
# node's network card at the same time share it. All ranks wait for the slowest: the norm of the
# gradient is that of all. They agree on it, on the loss and on what is to be saved in one small
# all-reduce per step, of which the latency counts; replicas that sync rarely first agree on a norm
# of their own.


WITHIN_A_NODE: Final = LinkSpeed(
    bytes_per_s=5e9, latency_s=2e-5, source="assumed within a node", is_measured=False
)
"""Sums over PCIe or shared memory. NVLink is faster."""

AGREED_BYTES: Final = 8
"""Bytes of each number in the small all-reduce of a step: float64."""

VOTES: Final = 6
"""Numbers next to loss and norm: about saving, stopping and changes of the recipe."""


def update_seconds(
    recipe: Recipe, shapes: Sequence[tuple[int, ...]], speed: DeviceSpeed, *, shards: int = 1
) -> float:
    """Return the seconds of the optimizer's step for parameters of these shapes."""
    if not speed.bytes_per_s:
        return 0.0
    values = sum(map(math.prod, shapes)) / shards
    counted = Counter(shapes).items()
    state = sum(count * optimizer_bytes(recipe, shape) for shape, count in counted) / shards
    passes = 5 if recipe.optimizer.clip_norm else 2
    moved = values * passes * gradient_width(recipe)
    moved += 2 * values * WIDTHS[recipe.dtype] + 2 * state
    return moved / speed.bytes_per_s


class End(NamedTuple):
    """The seconds of a place from the last backward pass to the end of the step.

    Args:
        own_s: of what all wait for.
        sync_s: of syncs of replicas: the mean of a step, as if none were behind computing.
    """

    own_s: float
    sync_s: float = 0.0

    def beside(self, computing_s: float, recipe: Recipe) -> float:
        """Return the seconds that are not overlapped with computing.

        Args:
            computing_s: of a step; averages that come later have several to arrive.
        """
        section = recipe.data_parallel
        hidden = section.sync_delay / section.fragment_steps if section.syncs_rarely else 0.0
        return self.own_s + max(0.0, self.sync_s - hidden * computing_s)


def end_seconds(
    recipe: Recipe,
    config: Config,
    layout: Layout,
    chain: Chain,
    place: int,
    devices: Sequence[Device],
    links: LinkBetween,
) -> End:
    """Return the time of a place from the last backward pass to the end of the step."""
    shapes = place_shapes(recipe, config, layout, place)
    speed, shards = chain.places[place].speed, recipe.data_parallel.shards
    update_s = update_seconds(recipe, shapes, speed, shards=shards)
    summed = sum_seconds(
        recipe,
        shapes,
        passed_in_step(recipe, config, layout, place),
        place,
        Rings.of(recipe, chain),
        devices,
        links,
    )
    return summed._replace(own_s=update_s + summed.own_s)


def place_shapes(
    recipe: Recipe, config: Config, layout: Layout, place: int
) -> list[tuple[int, ...]]:
    """Return the shapes of a place's parameters that have gradients."""
    return [
        shape
        for stage in layout.stages_of(place)
        for shape in trained_parameters(
            recipe,
            config,
            len(layout.stages[stage]),
            is_first=stage == 0,
            is_last=stage == layout.last_stage,
        )
    ]


class Rings(NamedTuple):
    """The rings of devices, by index, that exchange gradients, weights or updates.

    Args:
        replicas: rings of each place: one per shard.
        shards: of each place, those of its first replica.
    """

    replicas: tuple[tuple[tuple[int, ...], ...], ...]
    shards: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, recipe: Recipe, chain: Chain) -> Self:
        """Return the rings of a recipe's replicas and shards."""
        shards = recipe.data_parallel.shards
        held = [tuple(chain.indices[rank] for rank in place.ranks) for place in chain.places]
        return cls(
            tuple(tuple(own[first::shards] for first in range(shards)) for own in held),
            tuple(own[:shards] for own in held),
        )

    @property
    def every(self) -> tuple[tuple[int, ...], ...]:
        """All rings of replicas: they are used at the same time."""
        return tuple(ring for place in self.replicas for ring in place)


def sum_seconds(
    recipe: Recipe,
    shapes: Sequence[tuple[int, ...]],
    passed: Passed,
    place: int,
    rings: Rings,
    devices: Sequence[Device],
    links: LinkBetween,
) -> End:
    """Return the seconds in which replicas and shards exchange gradients and weights.

    Args:
        shapes: of the parameters that have gradients.
        passed: what shards gather and scatter.
        place: that holds these parameters.
    """
    replicas, shards = recipe.data_parallel.replicas, recipe.data_parallel.shards
    values = sum(map(math.prod, shapes))
    passed_s, replicas_s = 0.0, 0.0
    if shards > 1:
        passed_s = shard_seconds(passed, rings.shards[place], devices, links)
    if replicas > 1:
        replicas_s = max(
            replica_seconds(
                recipe, values / shards, ring_speed(devices, links, ring, beside=rings.every)
            )
            for ring in rings.replicas[place]
        )
    if recipe.data_parallel.syncs_rarely:
        return End(passed_s, replicas_s)
    return End(passed_s + replicas_s)


def shard_seconds(
    passed: Passed, ring: Sequence[int], devices: Sequence[Device], links: LinkBetween
) -> float:
    """Return the seconds in which shards gather weights and scatter gradients in a step.

    NCCL does both in rings (its performance notes count ``(n - 1) / n`` of the bytes for each). So
    does our gather over Gloo; our scatter has one round, in which each rank sends to all others:
    with several ranks on a node, more crosses its interface.
    """
    speed, ranks = ring_speed(devices, links, ring), len(ring)
    seconds = ring_seconds(passed.gathered, ranks, speed, rounds=1)
    late_s = (passed.gathers - 1) * (ranks - 1) * speed.latency_s
    if any(devices[one].is_gpu for one in ring):
        seconds += ring_seconds(passed.scattered, ranks, speed, rounds=1)
        return seconds + late_s + (passed.scatters - 1) * (ranks - 1) * speed.latency_s
    on_nodes = Counter(devices[one].node for one in ring).values()
    # Within a node each rank sends by itself.
    sent = max(own * (ranks - own) if own < ranks else ranks - 1 for own in on_nodes) / ranks
    seconds += sent * passed.scattered / speed.bytes_per_s
    return seconds + late_s + passed.scatters * speed.latency_s


def agreement_seconds(
    recipe: Recipe, config: Config, chain: Chain, devices: Sequence[Device], links: LinkBetween
) -> float:
    """Return the seconds per step in which all ranks agree on its loss and gradient norm, even
    where replicas sync rarely.
    """
    layers = config["num_hidden_layers"]
    names = len(parameters(config, layers, is_first=True, is_last=True))
    section = recipe.data_parallel
    if not section.syncs_rarely:
        return agreed_seconds(1 + names + VOTES, chain.indices, devices, links)
    replicas = [
        tuple(
            chain.indices[rank]
            for place in chain.places
            for rank in place.ranks[first : first + section.shards]
        )
        for first in range(0, section.width, section.shards)
    ]
    within = max(agreed_seconds(names, replica, devices, links) for replica in replicas)
    return within + agreed_seconds(2 + VOTES, chain.indices, devices, links)


def agreed_seconds(
    values: int, ring: Sequence[int], devices: Sequence[Device], links: LinkBetween
) -> float:
    """Return the seconds of one all-reduce of this many numbers in a ring."""
    if len(ring) < 2:
        return 0.0
    return ring_seconds(AGREED_BYTES * values, len(ring), ring_speed(devices, links, ring))


def replica_seconds(recipe: Recipe, values: float, speed: LinkSpeed) -> float:
    """Return the mean seconds per step in which replicas exchange gradients or, where they sync
    rarely, their updates.
    """
    section = recipe.data_parallel
    width = section.sent_bytes if section.syncs_rarely else gradient_width(recipe)
    every = max(1, section.sync_every)
    return ring_seconds(values * width, section.replicas, speed) / every


def ring_seconds(size_bytes: float, ranks: int, speed: LinkSpeed, *, rounds: int = 2) -> float:
    """Return the seconds of a ring's collective: two rounds for an all-reduce, one for a gather or
    scatter.
    """
    if ranks < 2:
        return 0.0
    share = (ranks - 1) / ranks
    return rounds * (share * size_bytes / speed.bytes_per_s + (ranks - 1) * speed.latency_s)


def ring_speed(
    devices: Sequence[Device],
    links: LinkBetween,
    own: Sequence[int],
    *,
    beside: Sequence[Sequence[int]] = (),
) -> LinkSpeed:
    """Return the slowest link of a ring, in the given order and back to the first device.

    Args:
        beside: all rings that are used at the same time, this one among them; by default, it alone.
    """
    crossing = crossings(devices, own)
    found = [WITHIN_A_NODE] if len(crossing) < len(own) else []
    if crossing:
        pairs = [pair for ring in beside or (own,) for pair in crossings(devices, ring)]
        found.append(slowest_link(devices, links, crossing, beside=pairs))
    return LinkSpeed(
        bytes_per_s=min(one.bytes_per_s for one in found),
        latency_s=max(one.latency_s for one in found),
    )


def crossings(devices: Sequence[Device], ring: Sequence[int]) -> list[tuple[int, int]]:
    """Return the pairs of sender and receiver of a ring that are on different nodes."""
    pairs = zip(ring, [*ring[1:], *ring[:1]], strict=True)
    return [(one, other) for one, other in pairs if devices[one].node != devices[other].node]


# Pricing: seconds of one setup on a chain of places, for any split and counts. Pure.


IDLE_INTERFACE: Final = 0.5
"""Share of a step up to which messages of an interface hardly meet."""

MOST_SHARED: Final = 256
"""Microbatches times places that are walked because links share an interface."""

MOST_SLOTS: Final = 3000
"""Forward passes of a step that are walked as events, by schedules that are not eager; of a longer
one, only the begin, or an eager one in its place.
"""


class Price:
    """Predicts the time of a setup on a chain.

    Args:
        setup: whose split is open, or given.
    """

    def __init__(self, setup: Setup, config: Config, chain: Chain) -> None:
        self.setup, self.chain = setup, chain
        self.places = len(chain.places)
        self.per_rank = setup.recipe.stages_per_rank if self.places > 1 else 1
        self.layers: int = config["num_hidden_layers"]
        schedule = setup.schedule
        self.stages = (
            stages_of(schedule, self.places, self.per_rank) if self.places > 1 else Stages(1)
        )
        self._own: list[list[int]] = [[] for _ in range(self.places)]
        for stage in range(self.stages.number):
            self._own[self.stages.rank_of(stage)].append(stage)
        self._roles: dict[tuple[bool, bool, int], tuple[StageTimes, StageTimes]] = {}
        self._config = config
        self._over_gloo = not any(place.is_gpu for place in chain.places)
        # A boundary is between nodes if it is so in one of the pipelines side by side.
        held = [tuple(device.node for device in place.devices) for place in chain.places]
        self.boundaries = boundaries(setup.recipe, config, held)
        self._links = {
            pair: plain_times(link, self.boundaries, over_gloo=self._over_gloo)
            for pair, link in chain.links.items()
        }
        self._coding: list[CodingTimes] = [
            coding_times(self.boundaries, stage, chain.places[self.stages.rank_of(stage)].speed)
            for stage in range(self.stages.number)
        ]
        self._onward, self._back = message_times(self.boundaries, self._link)
        self._carried = self._carried_by_links()
        self._nodes = [place.devices[0].node for place in chain.places]
        self._shared_s = self._busiest_interface()

    def _link(self, sender: int, receiver: int) -> LinkTimes:
        """Return the times of a message without compression."""
        return self._links.get((sender, receiver), FREE)

    def _carried_by_links(self) -> dict[Pair, tuple[float, float]]:
        """Return the bytes of one microbatch on each link between nodes, and their seconds."""
        found: dict[Pair, tuple[float, float]] = {}
        for one, there, back in zip(self.boundaries, self._onward, self._back, strict=True):
            here, other = one.ranks
            for pair, size, times in (
                ((here, other), one.forward, there),
                ((other, here), one.backward, back),
            ):
                if pair in self._links:
                    before, before_s = found.get(pair, (0.0, 0.0))
                    found[pair] = before + size, before_s + times.occupied
        return found

    def sent_bytes(self, pair: Pair) -> float:
        """Return the bytes that a link between nodes carries for one microbatch."""
        return self._carried.get(pair, (0.0, 0.0))[0]

    def busy_s(self, pair: Pair) -> float:
        """Return the seconds that a link between nodes is busy with one microbatch."""
        return self._carried.get(pair, (0.0, 0.0))[1]

    def times(self, split: Sequence[int]) -> list[StageTimes]:
        """Return the times of each stage, for these numbers of layers."""
        return [self._stage(stage, layers) for stage, layers in enumerate(split)]

    def costs(self, most: Sequence[float]) -> list[RankCost]:
        """Return each place's time per microbatch, for a layer and for the rest.

        With several stages per rank, one layer of each stage counts as fixed.
        """
        found = []
        for place in range(self.places):
            own = self._own[place]
            once = sum(self.total(self._stage(stage, 1)) for stage in own)
            twice = self.total(self._stage(own[0], 2))
            layer = twice - self.total(self._stage(own[0], 1))
            room = most[place] - (self.per_rank - 1)
            fit = self.layers if room == inf else max(0, int(room))
            found.append(RankCost(layer, once - layer, fit))
        return found

    def split(self, most: Sequence[float]) -> tuple[int, ...] | None:
        """Return the split whose slowest place is fastest; ``None`` if nothing fits."""
        extra = self.places * (self.per_rank - 1)
        totals = best_split(self.layers - extra, self.costs(most))
        if totals is None:
            return None
        split = [0] * self.stages.number
        for place, total in enumerate(totals):
            own = self._own[place]
            share, odd = divmod(total + self.per_rank - 1, self.per_rank)
            for number, stage in enumerate(own):
                split[stage] = share + (number < odd)
        return tuple(split)

    def total(self, times: StageTimes) -> float:
        """Return the seconds that one microbatch occupies a stage's device, with its messages'
        encoding and decoding.
        """
        return self._computed(times) + times.coding.seconds

    def _computed(self, times: StageTimes) -> float:
        """Return the seconds of computing one microbatch in a stage. DualPipeV splits only some
        backward passes.
        """
        if KINDS[self.setup.schedule].splits_backward and self.setup.schedule != "dualpipev":
            return times.forward + times.inputs + times.weights
        return times.forward + times.backward

    def bound(self, split: Sequence[int]) -> float:
        """Return a lower bound of the seconds, for any order of this schedule's actions.

        The slowest place computes all microbatches, after the first has come to it and, with one
        stage per rank and whole backward passes, before the last has gone back.
        """
        times, count = self.times(split), self.setup.microbatches
        computing = [0.0] * self.places
        for stage, one in enumerate(times):
            computing[self.stages.rank_of(stage)] += self.total(one)
        busiest = max((count * busy_s for _, busy_s in self._carried.values()), default=0.0)
        if self.per_rank > 1 or self.places == 1:
            return max(busiest, count * max(computing))
        forth = list(accumulate((one.forward for one in times), initial=0.0))
        home = list(accumulate((one.backward for one in times), initial=0.0))
        whole = 0.0 if self.setup.defers else 1.0
        hops = list(accumulate((one.seconds for one in self._onward), initial=0.0))
        through = (
            forth[place] + hops[place] + count * computing[place] + whole * home[place]
            for place in range(self.places)
        )
        return max(busiest, *through)

    def counts(self, split: Sequence[int]) -> Counts | None:
        """Return the counts that the trainer chooses for these times and links, or the
        given ones.
        """
        if not self.setup.is_eager:
            return None
        return choose_counts(
            self.setup.recipe,
            [self.total(one) for one in self.times(split)],
            [
                here.seconds + there.seconds
                for here, there in zip(self._onward, self._back, strict=True)
            ],
            [self.setup.microbatches] * self.places,
        )

    def seconds(self, split: Sequence[int], counts: Counts | None, *, whole: bool = False) -> float:
        """Return the seconds of one pass over the schedule.

        Args:
            whole: walk all of it, however long it is.
        """
        times, microbatches = self.times(split), self.setup.microbatches
        if counts is not None:
            walk = chain_seconds if whole else steady_seconds
            apart = walk(counts, times, self._onward, self._back, microbatches)
            return self._shared(apart, times, counts)
        if self.per_rank == 1 and self.stages.number * microbatches > MOST_SLOTS:
            return steady_seconds(
                self._alike_counts(), times, self._onward, self._back, microbatches
            )
        few, more = 2 * self.stages.number, 3 * self.stages.number
        if whole or microbatches <= more or self.stages.number * microbatches <= MOST_SLOTS:
            return self._walk(times, counts, microbatches).seconds
        short, longer = (self._walk(times, counts, one).seconds for one in (few, more))
        return longer + (longer - short) / (more - few) * (microbatches - more)

    def _alike_counts(self) -> Counts:
        """Return the counts of the eager schedule that computes in the same order.

        It does not wait until a message is sent, so it is a little faster over slow links.
        """
        behind, most = range(self.places, 0, -1), self.setup.microbatches
        keeps_all = self.setup.schedule == "gpipe"
        ahead = tuple(most if keeps_all else min(most, place) for place in behind)
        return Counts(ahead, (0,) * self.places)

    def computing_s(self, split: Sequence[int], counts: Counts | None) -> list[float]:
        """Return the seconds that each place computes in one pass over the schedule."""
        microbatches, times = self.setup.microbatches, self.times(split)
        if self.setup.schedule == "dualpipev":
            walked = self._walk(times, counts, microbatches)
            return [walked.computing_s(place) for place in range(self.places)]
        found = [0.0] * self.places
        for stage, one in enumerate(times):
            is_halved = counts is not None and counts.deferred[stage] > 0
            each = one.forward + one.inputs + one.weights if is_halved else self._computed(one)
            found[self.stages.rank_of(stage)] += microbatches * each
        return found

    def coding_s(self) -> list[float]:
        """Return the seconds that each place encodes and decodes messages in one pass over the
        schedule.
        """
        found = [0.0] * self.places
        for stage, one in enumerate(self._coding):
            found[self.stages.rank_of(stage)] += self.setup.microbatches * one.seconds
        return found

    def _shared(self, apart: float, times: Sequence[StageTimes], counts: Counts) -> float:
        """Return the seconds with links that share a node's interface, given those
        without sharing.
        """
        least = self.setup.microbatches * self._shared_s
        if least < IDLE_INTERFACE * apart:
            return apart
        if self.places * self.setup.microbatches > MOST_SHARED:
            return max(apart, least)
        return self._walk(times, counts, self.setup.microbatches).seconds

    def _busiest_interface(self) -> float:
        """Return the busiest shared interface's seconds per microbatch; 0 if none is shared."""
        busy: dict[tuple[str, str], list[float]] = {}
        for pair in self._links:
            occupied = self.busy_s(pair)
            for way, place in zip(("out", "in"), pair, strict=True):
                busy.setdefault((way, self._nodes[place]), []).append(occupied)
        return max((sum(one) for one in busy.values() if len(one) > 1), default=0.0)

    def _walk(
        self, times: Sequence[StageTimes], counts: Counts | None, microbatches: int
    ) -> Simulated:
        orders = self._orders(counts, microbatches)
        kind, slowest = KINDS[self.setup.schedule], max(map(self.total, times))
        is_shared = self._shared_s > IDLE_INTERFACE / 2 * slowest
        return simulate(
            orders,
            self.stages,
            times,
            self._link,
            share_of=shares_of(self.boundaries),
            node_of=self._nodes.__getitem__ if is_shared else None,
            is_one_connection=self._over_gloo and kind.most == 1 and not kind.is_eager,
        )

    def _orders(self, counts: Counts | None, microbatches: int) -> tuple[Actions, ...]:
        if self.places == 1:
            return make_order("eager-1f1b", 1, microbatches)
        return make_order(
            self.setup.schedule,
            self.places,
            microbatches,
            stages_per_rank=self.per_rank,
            ahead=None if counts is None else counts.ahead,
            deferred=None if counts is None else counts.deferred,
        )

    def _stage(self, stage: int, layers: int) -> StageTimes:
        is_first, is_last = stage == 0, stage == self.stages.number - 1
        place = self.stages.rank_of(stage)
        key = is_first, is_last, place
        if key not in self._roles:
            self._roles[key] = self._priced(is_first, is_last, place)
        one, two = self._roles[key]
        more = layers - 1
        return StageTimes(
            one.forward + more * (two.forward - one.forward),
            one.backward + more * (two.backward - one.backward),
            one.inputs + more * (two.inputs - one.inputs),
            one.weights + more * (two.weights - one.weights),
            self._coding[stage],
        )

    def _priced(self, is_first: bool, is_last: bool, place: int) -> tuple[StageTimes, StageTimes]:
        """Return the times of one and two layers: they grow linearly with layers."""
        speed = self.chain.places[place].speed
        one, two = (self._cost(layers, is_first, is_last, speed) for layers in (1, 2))
        return one, two

    def _cost(self, layers: int, is_first: bool, is_last: bool, speed: DeviceSpeed) -> StageTimes:
        cost = stage_cost(
            self.setup.recipe, self._config, layers, is_first=is_first, is_last=is_last
        )
        return times_under(self.setup.schedule, cost, speed, is_first=is_first)


# Priced: a setup on a chain, with the best split and counts that fit. Pure.


ALIKE: Final = 0.01
"""Share of a step by which a simpler choice may be slower."""

SMALL: Final = 1000
"""Forward passes of a step up to which many counts are tried."""

MOST_WALKED: Final = 10_000
"""Forward passes that a refinement of one setup walks to find a better split."""

WORTH_MOVING: Final = 0.002
"""Share of a step that another split must save."""

FEW_SPLITS: Final = 200
"""Number of splits up to which all are tried."""

FEW_STAGES: Final = 6
"""Number of stages up to which every move of a layer is tried."""


class Task(Record, frozen=True):
    """A job to plan: its recipe, model, devices and links.

    Args:
        recipe: with what depends on the devices resolved.
        opened: settings to choose.
    """

    recipe: Recipe
    config: Config
    devices: tuple[Device, ...]
    links: LinkBetween
    opened: frozenset[str]


class Choice(NamedTuple):
    """A setup with its split and counts, and the predicted time.

    Args:
        setup: with the split in its recipe.
        split: layers of each stage.
        counts: where the schedule lets them be chosen.
        pass_s: of one pass over the schedule.
        end_s: from the last backward pass to the end of the step.
    """

    setup: Setup
    split: tuple[int, ...]
    counts: Counts | None
    pass_s: float
    end_s: float

    @property
    def settings(self) -> tuple[ScheduleName, int, Checkpointing]:
        """The schedule, number of microbatches and recomputation."""
        return self.setup.settings

    @property
    def step_s(self) -> float:
        return self.setup.recipe.train.accumulation * self.pass_s + self.end_s

    def chosen(self, opened: Collection[str]) -> dict[str, str]:
        """Return the values of the settings that were open, in TOML without quotes."""
        values = {
            "pipeline.schedule": self.setup.schedule,
            "pipeline.microbatches": str(self.setup.microbatches),
            "pipeline.split": json.dumps(self.split),
            "memory.checkpointing": self.setup.checkpointing,
        }
        transfer = self.setup.recipe.pipeline.transfer
        if transfer != "auto":
            values["pipeline.transfer"] = (
                transfer if isinstance(transfer, str) else json.dumps(transfer)
            )
        if self.counts is not None and len(self.split) > 1:
            values["pipeline.in_flight"] = json.dumps(self.counts.ahead)
            if self.setup.defers:
                values["pipeline.deferred"] = json.dumps(self.counts.deferred)
        return {name: value for name, value in values.items() if name in opened}


class Priced:
    """A setup on a chain, with its predicted time and memory.

    Args:
        room: of the same setup with other transfers, if it is known.
    """

    def __init__(self, task: Task, chain: Chain, setup: Setup, room: Room | None = None) -> None:
        self._task, self._chain = task, chain
        self.setup = setup
        self.price = Price(setup, task.config, chain)
        self.lack: Shortfall | None = None
        """The shortfall of the last split that did not fit."""
        self.room = room or Room(setup, task.config, chain)
        self._cap = self.price.places
        self._agreement_s: float | None = None
        self._ends: dict[tuple[tuple[int, ...], int], End] = {}
        self._given = self._fixed_split()

    @property
    def is_small(self) -> bool:
        return self.price.stages.number * self.setup.microbatches <= SMALL

    def least(self) -> float:
        """Return a lower bound of the seconds for any split, even one that does not fit."""
        split = self._given or self.price.split([inf] * self.price.places)
        return inf if split is None else self.bound(split)

    def first_split(self) -> tuple[int, ...] | None:
        """Return the given split, or the one whose slowest place is fastest; ``None`` if none fits.

        With as many microbatches in flight as 1F1B has; fewer only where these do not fit.
        """
        self._cap = self.price.places
        while True:
            split = self._fitting_split()
            can_hold_less = self.setup.is_eager and self.setup.recipe.pipeline.in_flight == "auto"
            if split is not None or not can_hold_less or self._cap == 1:
                return split
            self._cap //= 2

    def _fitting_split(self) -> tuple[int, ...] | None:
        most = self.room.most_layers(self._fewest())
        for _ in range(2 * self.price.places):
            split = self._given or self.price.split(most)
            if split is None:
                self._note_lack()
                return None
            lack = self.room.lack(split, self._fewest())
            if lack is None:
                return split
            self.lack = lack
            if self._given:
                return None
            held = sum(
                layers
                for stage, layers in enumerate(split)
                if self.price.stages.rank_of(stage) == lack.place
            )
            most[lack.place] = held - 1
        return None

    def bound(self, split: Sequence[int]) -> float:
        """Return a lower bound of the step's duration."""
        return self.setup.recipe.train.accumulation * self.price.bound(split)

    def first(self, split: tuple[int, ...]) -> Choice:
        """Return a split's choice, with the counts that the trainer would choose, or fewer that
        fit.
        """
        return self._found(split, self._first_counts(split))

    def refine(self, found: Choice) -> Choice:
        """Move layers and change counts as long as that shortens the step."""
        best = self._with_counts(found)
        if self._given:
            return best
        left = MOST_WALKED // (self.price.stages.number * self.setup.microbatches)
        while left > 0:
            moved = best
            for split in self._splits(best.split):
                if self.price.bound(split) >= moved.pass_s:
                    continue
                for counts in {best.counts, self._first_counts(split)}:
                    if self.room.lack(split, counts) is None:
                        left -= 1
                        here = self._found(split, counts)
                        if here.step_s < moved.step_s * (1 - WORTH_MOVING):
                            moved = here
            if moved is best:
                break
            best = moved
        return self._with_counts(best)

    def again(self, found: Choice) -> Choice:
        """Return the choice with the same split and counts as another one."""
        return self._found(found.split, found.counts)

    def with_split(self, split: tuple[int, ...]) -> Choice | None:
        """Return the choice for another split; ``None`` if it does not fit."""
        self.lack = self.room.lack(split, self._fewest())
        if self.lack is not None:
            return None
        return self._with_counts(self.first(split))

    def _fixed_split(self) -> tuple[int, ...] | None:
        if "pipeline.split" in self._task.opened:
            return None
        layout = lay_out(self.setup.recipe, len(self._chain.indices), self.price.layers)
        return tuple(map(len, layout.stages))

    def _fewest(self) -> Counts | None:
        """Return the given counts, or those of 1F1B, capped to what fits."""
        if not self.setup.is_eager:
            return None
        section, places = self.setup.recipe.pipeline, self.price.places
        most = min(self.setup.microbatches, self._cap)
        ahead = tuple(min(most, places - place) for place in range(places))
        return Counts(
            ahead if section.in_flight == "auto" else section.in_flight,
            (0,) * places if section.deferred == "auto" else section.deferred,
        )

    def _first_counts(self, split: tuple[int, ...]) -> Counts | None:
        """Return the counts that the trainer would choose, or fewer that fit."""
        fewest, wanted = self._fewest(), self.price.counts(split)
        if fewest is None or wanted is None:
            return None
        while self.room.lack(split, wanted) is not None and wanted != fewest:
            wanted = Counts(
                _fewer(wanted.ahead, fewest.ahead), _fewer(wanted.deferred, fewest.deferred)
            )
        return wanted

    def _with_counts(self, found: Choice) -> Choice:
        """Return the choice with the same split and the best counts."""
        if found.counts is None:
            return found
        tried = {found.counts: found}
        for counts in self._counts():
            if counts not in tried and self.room.lack(found.split, counts) is None:
                tried[counts] = self._found(found.split, counts)
        best_s = min(one.step_s for one in tried.values())
        near = [one for one in tried.values() if one.step_s <= best_s * (1 + ALIKE / 4)]
        return min(near, key=lambda one: (_held(one.counts), one.step_s))

    def _counts(self) -> Iterator[Counts]:
        """Yield counts of microbatches in flight and deferred gradients that grow along
        the chain.
        """
        section, most = self.setup.recipe.pipeline, self.setup.microbatches
        behind = range(self.price.places)
        steps = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0) if self.is_small else (0.0, 1.0)
        growths = (0.5, 1.0, 1.5, 2.0, 3.0) if self.is_small else (1.0, 2.0)
        flying = [
            tuple(min(most, 1 + ceil(place * (1 + more))) for place in reversed(behind))
            for more in steps
        ]
        kept = [tuple(min(most, ceil(place * each)) for place in behind) for each in growths]
        if section.in_flight != "auto":
            flying = [section.in_flight]
        if section.deferred != "auto":
            kept = [section.deferred]
        for ahead in flying:
            for deferred in kept if self.setup.defers else [(0,) * len(behind)]:
                yield Counts(ahead, deferred)

    def _splits(self, split: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """Yield all splits if they are few; otherwise those with one layer moved, with many stages
        only from the slowest ones.
        """
        stages, layers = len(split), self.price.layers
        if comb(layers - 1, stages - 1) <= FEW_SPLITS:
            for cuts in combinations(range(1, layers), stages - 1):
                yield tuple(after - cut for cut, after in pairwise((0, *cuts, layers)))
            return
        times = [self.price.total(one) for one in self.price.times(split)]
        slowest = sorted(range(stages), key=lambda stage: -times[stage])
        givers = slowest if stages <= FEW_STAGES else slowest[:2]
        for giver in givers:
            for taker in reversed(slowest):
                if giver != taker and split[giver] > 1:
                    moved = list(split)
                    moved[giver] -= 1
                    moved[taker] += 1
                    yield tuple(moved)

    def _found(self, split: tuple[int, ...], counts: Counts | None) -> Choice:
        recipe = replaced(self.setup.recipe, split=split)
        pass_s = self.price.seconds(split, counts)
        return Choice(Setup(recipe), split, counts, pass_s, self._end(recipe, pass_s))

    def _end(self, recipe: Recipe, pass_s: float) -> float:
        """Return the slowest place's seconds after its last backward pass."""
        computing_s = recipe.train.accumulation * pass_s
        if self._agreement_s is None:
            task = self._task
            self._agreement_s = agreement_seconds(
                recipe, task.config, self._chain, task.devices, task.links
            )
        layout = lay_out(recipe, len(self._chain.indices), self.price.layers)
        slowest = 0.0
        for place in range(layout.world_size):
            own = tuple(len(layout.stages[stage]) for stage in layout.stages_of(place))
            if (own, place) not in self._ends:
                self._ends[own, place] = end_seconds(
                    recipe,
                    self._task.config,
                    layout,
                    self._chain,
                    place,
                    self._task.devices,
                    self._task.links,
                )
            slowest = max(slowest, self._ends[own, place].beside(computing_s, recipe))
        return slowest + self._agreement_s

    def _note_lack(self) -> None:
        """Record how much memory the unlimited split lacks, as nothing fits."""
        split = self.price.split([inf] * self.price.places)
        if split is not None:
            self.lack = self.room.lack(split, self._fewest()) or self.lack


def _fewer(counts: Sequence[int], least: Sequence[int]) -> tuple[int, ...]:
    return tuple(max(few, count - 1) for few, count in zip(least, counts, strict=True))


def _held(counts: Counts | None) -> int:
    return 0 if counts is None else sum(counts.ahead) + sum(counts.deferred)
