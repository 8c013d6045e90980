"""Update: the end of a step, in which gradients are summed and weights updated. Pure.

Every byte that is read or written takes its share of the memory's bandwidth; arithmetic is free
beside it. Gradients: read for their norm, read and written as they are clipped, read by the
optimizer, written as they are cleared. Weights and the optimizer's state: read and written.
Replicas sum gradients in a ring (each link carries ``2 (n - 1) / n`` of them); shards gather
weights once and scatter gradients once (``(n - 1) / n`` each), layer by layer: each layer waits for
its own messages. Over Gloo, shards send gradients to each other directly. Rings that use a node's
network card at the same time share it. All ranks wait for the slowest: the norm of the gradient is
that of all.
They agree on it, on the loss and on what is to be saved in one small all-reduce per step, of which
the latency counts; replicas that meet rarely first agree on a norm of their own.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple, Self

from jupyter_mntrain.model.records.plan import DeviceSpeed, LinkSpeed
from jupyter_mntrain.plan.choosing.devices import Chain, Device, LinkBetween, slowest_link
from jupyter_mntrain.plan.prediction.traffic import Passed, passed_in_step
from jupyter_mntrain.recipe.families import parameters
from jupyter_mntrain.recipe.layout import Layout
from jupyter_mntrain.recipe.memory import (
    WIDTHS,
    Config,
    gradient_width,
    optimizer_bytes,
    trained_parameters,
)
from jupyter_mntrain.recipe.sections import Recipe

WITHIN_A_NODE: Final = LinkSpeed(
    bytes_per_s=5e9, latency_s=2e-5, source="assumed within a node", is_measured=False
)
"""Sums over PCIe or shared memory. NVLink is faster."""

AGREED_BYTES: Final = 8
"""Of each number in the small all-reduce of a step: float64."""

VOTES: Final = 6
"""Numbers beside loss and norm: about saving, stopping and changes of the recipe."""


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
    """Seconds of a place from the last backward pass to the end of the step.

    Args:
        own_s: of what all wait for.
        meeting_s: of meetings of replicas: the mean of a step, as if none were behind computing.
    """

    own_s: float
    meeting_s: float = 0.0

    def beside(self, computing_s: float, recipe: Recipe) -> float:
        """Return all of them, less what is hidden.

        Args:
            computing_s: of a step; averages that come later have several to arrive.
        """
        section = recipe.data_parallel
        hidden = section.sync_delay / section.fragment_steps if section.meets_rarely else 0.0
        return self.own_s + max(0.0, self.meeting_s - hidden * computing_s)


def end_seconds(
    recipe: Recipe,
    config: Config,
    layout: Layout,
    chain: Chain,
    place: int,
    devices: Sequence[Device],
    links: LinkBetween,
) -> End:
    """Return what a place takes from the last backward pass to the end of the step."""
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
    """Shapes of the parameters of a place that have gradients."""
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
    """Who exchanges gradients, weights or what was learned, as indices of devices.

    Args:
        replicas: rings of each place: one per shard.
        shards: of each place, those of its first replica.
    """

    replicas: tuple[tuple[tuple[int, ...], ...], ...]
    shards: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, recipe: Recipe, chain: Chain) -> Self:
        """Those of a recipe's places."""
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
    if recipe.data_parallel.meets_rarely:
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
    """Return the seconds in which all ranks agree on a step's loss and gradient norm, in every
    step: also where replicas meet rarely.
    """
    layers = config["num_hidden_layers"]
    names = len(parameters(config, layers, is_first=True, is_last=True))
    section = recipe.data_parallel
    if not section.meets_rarely:
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
    """Return the seconds of an all-reduce of so many numbers in this ring, once per step."""
    if len(ring) < 2:
        return 0.0
    return ring_seconds(AGREED_BYTES * values, len(ring), ring_speed(devices, links, ring))


def replica_seconds(recipe: Recipe, values: float, speed: LinkSpeed) -> float:
    """Return the seconds in which replicas exchange gradients, or where they meet rarely what they
    learned: the mean of a step.
    """
    section = recipe.data_parallel
    width = section.sent_bytes if section.meets_rarely else gradient_width(recipe)
    every = max(1, section.sync_every)
    return ring_seconds(values * width, section.replicas, speed) / every


def ring_seconds(size_bytes: float, ranks: int, speed: LinkSpeed, *, rounds: int = 2) -> float:
    """Return the seconds of a ring: an all-reduce takes two rounds, a gather or scatter one."""
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
    """The slowest link of a ring, in the order given and back to the first.

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
    """Senders and receivers of a ring that are on different nodes."""
    pairs = zip(ring, [*ring[1:], *ring[:1]], strict=True)
    return [(one, other) for one, other in pairs if devices[one].node != devices[other].node]
