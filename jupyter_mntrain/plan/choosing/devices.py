"""Devices: the device of each rank of a job, and the pipeline places that ranks fill. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, permutations
from math import inf
from statistics import fmean
from typing import Final, NamedTuple

import msgspec

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.records.plan import (
    DeviceMeasurement,
    DeviceSpeed,
    LinkSpeed,
    MeasuredLayer,
)
from jupyter_mntrain.plan.measured_speeds import correction
from jupyter_mntrain.plan.prediction.simulator import Pair
from jupyter_mntrain.recipe.layout import make_grid
from jupyter_mntrain.recipe.sections import Recipe

GPU_LAYER_S: Final = 4e-4
"""Some 50 kernels of a layer in a pass, at 8 µs for each launch by eager PyTorch. Not measured."""

CPU_LAYER_S: Final = 3e-4
"""Measured with 8 tokens of width 64 on one core of a virtual Xeon: 0.3 to 0.4 ms forward,
0.4 to 0.5 ms backward."""

LinkBetween = Callable[[int, int], LinkSpeed]
"""Speed of the link between two ranks; called only for ranks on different nodes."""


class Device(Record, frozen=True):
    """The device on which a rank computes.

    Args:
        node: its name.
        name: of the device, for people, such as ``GPU 0, RTX 4090`` or ``CPU``.
        memory_bytes: that the rank may use; ``None`` if it is unknown.
    """

    node: str
    name: str
    speed: DeviceSpeed
    memory_bytes: float | None = None
    is_gpu: bool = False

    @property
    def known_speed(self) -> DeviceSpeed:
        """The device's speed, with an assumed overhead per layer if it was not measured."""
        if self.speed.is_measured or self.speed.overhead_s:
            return self.speed
        return msgspec.structs.replace(
            self.speed, overhead_s=GPU_LAYER_S if self.is_gpu else CPU_LAYER_S
        )


class PipelinePlace(Record, frozen=True):
    """A rank's place in a pipeline; with several pipelines, of all ranks with the same layers.

    Args:
        ranks: of the job, by the order in which they run.
        devices: theirs.
        speed: of the slowest.
        memory_bytes: of the smallest; ``None`` if none is known.
    """

    ranks: tuple[int, ...]
    devices: tuple[Device, ...]
    speed: DeviceSpeed
    memory_bytes: float | None

    @property
    def ranked(self) -> Iterator[tuple[int, Device]]:
        """Yield the place's ranks, each with its device."""
        return zip(self.ranks, self.devices, strict=True)

    @property
    def smallest(self) -> tuple[int, Device]:
        """The rank with the least memory, and its device, which limit the place."""

        def size(ranked: tuple[int, Device]) -> float:
            known = ranked[1].memory_bytes
            return inf if known is None else known

        return min(self.ranked, key=size)

    @property
    def is_gpu(self) -> bool:
        return any(device.is_gpu for device in self.devices)


class Chain(Record, frozen=True):
    """The places of a pipeline in order, and the links between them.

    Args:
        order: participants, as indices into those given.
        indices: of the devices, in the order in which they run.
        links: between places on different nodes; those that can send to each other.
    """

    order: tuple[int, ...]
    indices: tuple[int, ...]
    places: tuple[PipelinePlace, ...]
    links: Mapping[Pair, LinkSpeed]


def participants(devices: Sequence[Device]) -> tuple[tuple[int, ...], ...]:
    """Return the indices of each participant's devices, which are neighbors."""
    numbered = enumerate(devices)
    return tuple(
        tuple(index for index, _ in own) for _, own in groupby(numbered, lambda one: one[1].node)
    )


def make_chain(
    devices: Sequence[Device], links: LinkBetween, recipe: Recipe, order: Sequence[int]
) -> Chain:
    """Arrange devices as a pipeline.

    Args:
        recipe: with its pipelines side by side.
        order: of participants.
    """
    groups = participants(devices)
    indices = tuple(index for one in order for index in groups[one])
    grid = make_grid(recipe, len(indices))
    alike = [grid.alike(place) for place in range(len(indices) // grid.width)]
    places = tuple(_place([devices[indices[rank]] for rank in ranks], ranks) for ranks in alike)
    held = [[indices[rank] for rank in ranks] for ranks in alike]
    count = len(places)
    pairs = {(one, one + 1) for one in range(count - 1)} | (
        {(count - 1, 0)} if count > 2 else set()
    )
    found = {}
    for here, there in sorted(pairs | {(after, before) for before, after in pairs}):
        speed = _between(devices, links, held[here], held[there])
        if speed is not None:
            found[here, there] = speed
    return Chain(tuple(order), indices, places, found)


def orders(
    devices: Sequence[Device], links: LinkBetween, most: int = 6
) -> Iterator[tuple[int, ...]]:
    """Yield orders of participants worth trying: as given first, then all of them.

    Of more than ``most`` nodes, those that follow the best link from each node on.
    """
    groups = participants(devices)
    given = tuple(range(len(groups)))
    yield given
    if len(groups) <= most:
        yield from (order for order in permutations(given) if order != given)
        return

    def speed(one: int, other: int) -> tuple[float, float]:
        there, back = (
            links(groups[one][0], groups[other][0]),
            links(groups[other][0], groups[one][0]),
        )
        return min(there.bytes_per_s, back.bytes_per_s), -there.latency_s - back.latency_s

    for first in given:
        order, left = [first], set(given) - {first}
        while left:
            last = order[-1]
            order.append(max(sorted(left), key=lambda other: speed(last, other)))
            left.remove(order[-1])
        yield tuple(order)


def _place(here: Sequence[Device], ranks: tuple[int, ...]) -> PipelinePlace:
    sizes = [one.memory_bytes for one in here if one.memory_bytes is not None]
    return PipelinePlace(
        ranks=ranks,
        devices=tuple(here),
        speed=slowest([one.known_speed for one in here]),
        memory_bytes=min(sizes, default=None),
    )


def slowest(speeds: Sequence[DeviceSpeed]) -> DeviceSpeed:
    """Return a speed with the slowest of each figure."""
    moved = [one.bytes_per_s for one in speeds if one.bytes_per_s is not None]
    saved = [one.layer_bytes_per_s for one in speeds if one.layer_bytes_per_s is not None]
    first = min(speeds, key=lambda one: one.flops_per_s)
    return msgspec.structs.replace(
        first,
        bytes_per_s=min(moved, default=None),
        layer_bytes_per_s=min(saved, default=None),
        overhead_s=max(one.overhead_s for one in speeds),
        is_measured=all(one.is_measured for one in speeds),
    )


def _between(
    devices: Sequence[Device],
    links: LinkBetween,
    here: Sequence[int],
    there: Sequence[int],
) -> LinkSpeed | None:
    """Return the slowest link between two places; pipelines that send to the same node share it."""
    crossing = [
        (one, other)
        for one, other in zip(here, there, strict=True)
        if devices[one].node != devices[other].node
    ]
    return slowest_link(devices, links, crossing, beside=crossing) if crossing else None


def slowest_link(
    devices: Sequence[Device],
    links: LinkBetween,
    crossing: Sequence[tuple[int, int]],
    *,
    beside: Sequence[tuple[int, int]],
) -> LinkSpeed:
    """Return the slowest of some links between nodes, as all links of a node share its network
    card.

    Args:
        crossing: senders and receivers of these links, as indices of devices; at least one.
        beside: those of all links that carry something at the same time, these among them.
    """
    speeds = [links(one, other) for one, other in crossing]
    out, into = (Counter(devices[pair[end]].node for pair in beside) for end in (0, 1))
    shared = [
        speed.bytes_per_s / max(out[devices[one].node], into[devices[other].node])
        for speed, (one, other) in zip(speeds, crossing, strict=True)
    ]
    worst = min(range(len(shared)), key=shared.__getitem__)
    return msgspec.structs.replace(
        speeds[worst],
        bytes_per_s=shared[worst],
        latency_s=max(one.latency_s for one in speeds),
        is_measured=all(one.is_measured for one in speeds),
    )


# Equal devices: of one kind, and measured as unlike as each of them varies by itself. Pure.
#
# A measurement takes seconds. Cores of a virtual machine, and laptops, vary within them by more
# than two of a kind differ: a split that follows such a difference follows chance.


MOST_VARIATIONS: Final = 2.0
"""Standard deviations of one time by which equal devices may differ."""

MOST_DIFFERENCE: Final = 0.3
"""Share by which they may differ at most, however much they vary."""


class MeasuredDevice(NamedTuple):
    """The device of a rank, and the measurement that its speed comes from.

    Args:
        gpu: its index; ``None``: the CPU, which all ranks of the node share.
        ranks: of the job on its node.
        measurement: ``None``: its speed is guessed.
        layer: the one of the measurement that its speed comes from.
    """

    device: Device
    gpu: int | None
    ranks: int
    measurement: DeviceMeasurement | None = None
    layer: MeasuredLayer | None = None


class _Measured(NamedTuple):
    """A measured device, with the ranks that compute on it.

    Args:
        indices: of the ranks that compute on it.
        layer_s: seconds of both passes of a layer, as they were measured.
        slower: by the newest job; ``None``: none has corrected what was measured.
    """

    indices: tuple[int, ...]
    speed: DeviceSpeed
    layer_s: float
    variation: float
    is_disturbed: bool
    slower: float | None


def with_equal_speeds(found: Sequence[MeasuredDevice]) -> tuple[Device, ...]:
    """Return the devices of all ranks, in order; equal devices get the mean of their speeds."""
    devices = [one.device for one in found]
    for measured in _by_kind(found):
        for equal in _groups(measured, lambda one: one.layer_s):
            speed = _common_speed(equal)
            for index in (index for one in equal for index in one.indices):
                old = devices[index]
                devices[index] = msgspec.structs.replace(old, speed=speed or old.speed)
    return tuple(devices)


def _by_kind(found: Sequence[MeasuredDevice]) -> Iterator[list[_Measured]]:
    """Yield groups of measured devices that are the same except for their speed."""
    ranks: dict[tuple[str, int | None], list[int]] = defaultdict(list)
    for index, one in enumerate(found):
        ranks[one.device.node, one.gpu].append(index)
    kinds: dict[Hashable, list[_Measured]] = defaultdict(list)
    for indices in ranks.values():
        one = found[indices[0]]
        if (measurement := one.measurement) is None or (layer := one.layer) is None:
            continue
        shared = (one.ranks, measurement.ranks, measurement.threads, measurement.cpus)
        what = measurement.device, measurement.dtype, measurement.torch
        size = layer.hidden_size, layer.tokens
        kinds[what, size, shared if one.gpu is None else ()].append(
            _Measured(
                tuple(indices),
                one.device.speed,
                layer.forward_s + layer.backward_s,
                layer.variation,
                bool(measurement.disturbed),
                correction(measurement),
            )
        )
    yield from kinds.values()


def _groups(
    devices: Iterable[_Measured], seconds: Callable[[_Measured], float]
) -> list[list[_Measured]]:
    """Group devices whose times differ by no more than chance from the fastest of their group."""
    groups: list[list[_Measured]] = []
    for one in sorted(devices, key=seconds):
        if groups:
            fastest = groups[-1][0]
            varied = max(fastest.variation, one.variation)
            most = min(MOST_VARIATIONS * varied, MOST_DIFFERENCE)
            if seconds(one) <= seconds(fastest) * (1 + most):
                groups[-1].append(one)
                continue
        groups.append([one])
    return groups


def _common_speed(equal: Sequence[_Measured]) -> DeviceSpeed | None:
    """Return the mean speed by the best measurements: corrected by jobs, else undisturbed, else
    all.

    ``None``: each has its own, as there is one alone, or jobs have shown that they are unlike.
    """
    if len(equal) == 1:
        return None
    corrected = [one for one in equal if one.slower is not None]
    if len(_groups(corrected, lambda one: one.layer_s * (one.slower or 1.0))) > 1:
        return None
    undisturbed = [one for one in equal if not one.is_disturbed]
    return _mean([one.speed for one in corrected or undisturbed or equal], len(equal))


def _mean(speeds: Sequence[DeviceSpeed], count: int) -> DeviceSpeed:
    """Return the speed that takes the mean of the devices' times."""
    first = speeds[0]
    part = "mean" if len(speeds) == count else f"by {len(speeds)}"
    return msgspec.structs.replace(
        first,
        flops_per_s=_mean_rate([one.flops_per_s for one in speeds]) or first.flops_per_s,
        bytes_per_s=_mean_rate([one.bytes_per_s for one in speeds]),
        layer_bytes_per_s=_mean_rate([one.layer_bytes_per_s for one in speeds]),
        overhead_s=fmean(one.overhead_s for one in speeds),
        source=f"{first.source}, {part} of {count} equal devices",
    )


def _mean_rate(rates: Sequence[float | None]) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return 1 / fmean(1 / rate for rate in known) if len(known) == len(rates) else None
