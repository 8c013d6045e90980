"""Equal devices: of one kind, and measured as unlike as each of them varies by itself. Pure.

A measurement takes seconds. Cores of a virtual machine, and laptops, vary within them by more than
two of a kind differ: a split that follows such a difference follows chance.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from statistics import fmean
from typing import Final, NamedTuple

import msgspec

from jupyter_mntrain.model.records.plan import DeviceMeasurement, DeviceSpeed, MeasuredLayer
from jupyter_mntrain.plan.choosing.devices import Device
from jupyter_mntrain.plan.prediction.device_speeds import correction

MOST_VARIATIONS: Final = 2.0
"""Standard deviations of one time by which equal devices may differ."""

MOST_DIFFERENCE: Final = 0.3
"""Share by which they may differ at most, however much they vary."""


class MeasuredDevice(NamedTuple):
    """What a rank computes on, and what its speed comes from.

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
    """A device that was measured.

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
    """The devices of all ranks, in their order; equal ones have the mean of their speeds."""
    devices = [one.device for one in found]
    for measured in _by_kind(found):
        for equal in _groups(measured, lambda one: one.layer_s):
            speed = _common_speed(equal)
            for index in (index for one in equal for index in one.indices):
                old = devices[index]
                devices[index] = msgspec.structs.replace(old, speed=speed or old.speed)
    return tuple(devices)


def _by_kind(found: Sequence[MeasuredDevice]) -> Iterator[list[_Measured]]:
    """Measured devices that are the same but for their speed."""
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
    """Devices by what may be chance, from the fastest of each group on."""
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
    """By those of them that say most: corrected by jobs, else undisturbed ones, else all.

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
    """What takes the mean of their times."""
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
