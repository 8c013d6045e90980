"""Equal devices: of one kind, and measured as unlike as each of them varies by itself. Pure.

A measurement takes seconds. Cores of a virtual machine, and laptops, vary within them by more than
two of a kind differ: a split that follows such a difference follows chance.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from statistics import fmean
from typing import Final, NamedTuple

import msgspec

from jupyter_mntrain.model.records.plan import DeviceMeasurement, DeviceSpeed, MeasuredLayer
from jupyter_mntrain.plan.choosing.devices import Device

MOST_VARIATIONS: Final = 2.0
"""Standard deviations of one time by which equal devices may differ."""


class MeasuredDevice(NamedTuple):
    """A device and what its speed comes from.

    Args:
        ranks: of the job on its node.
        measurement: ``None``: its speed is guessed, or what a job achieved on it has corrected it.
        layer: the one of the measurement that its speed comes from.
    """

    device: Device
    ranks: int
    measurement: DeviceMeasurement | None = None
    layer: MeasuredLayer | None = None

    @property
    def kind(self) -> Hashable:
        """What is the same of equal devices, besides their speed."""
        one, layer = self.measurement, self.layer
        if one is None or layer is None:
            return None
        shared = self.ranks, one.ranks, one.threads, one.cpus
        return one.device, one.dtype, one.torch, shared, layer.hidden_size, layer.tokens

    @property
    def layer_s(self) -> float:
        assert self.layer is not None  # noqa: S101 - those of a kind have one
        return self.layer.forward_s + self.layer.backward_s


def with_equal_speeds(found: Sequence[MeasuredDevice]) -> tuple[Device, ...]:
    """The devices in their order; equal ones have the mean of their speeds."""
    devices = [one.device for one in found]
    kinds: dict[Hashable, list[int]] = defaultdict(list)
    for index, one in enumerate(found):
        if one.kind is not None:
            kinds[one.kind].append(index)
    for indices in kinds.values():
        for equal in _equal(found, indices):
            speed = _mean([devices[index].speed for index in equal])
            for index in equal:
                devices[index] = msgspec.structs.replace(devices[index], speed=speed)
    return tuple(devices)


def _equal(found: Sequence[MeasuredDevice], indices: Iterable[int]) -> Iterator[list[int]]:
    """Several of a kind that differ by no more than they vary, from the fastest on."""
    equal: list[int] = []
    for index in sorted(indices, key=lambda one: found[one].layer_s):
        if equal and not _differ_by_chance(found[equal[0]], found[index]):
            yield from [equal] if len(equal) > 1 else []
            equal = []
        equal.append(index)
    yield from [equal] if len(equal) > 1 else []


def _differ_by_chance(faster: MeasuredDevice, slower: MeasuredDevice) -> bool:
    varied = max(one.layer.variation for one in (faster, slower) if one.layer is not None)
    return slower.layer_s <= faster.layer_s * (1 + MOST_VARIATIONS * varied)


def _mean(speeds: Sequence[DeviceSpeed]) -> DeviceSpeed:
    """What takes the mean of their times."""
    first = speeds[0]
    return msgspec.structs.replace(
        first,
        flops_per_s=_mean_rate([one.flops_per_s for one in speeds]) or first.flops_per_s,
        bytes_per_s=_mean_rate([one.bytes_per_s for one in speeds]),
        layer_bytes_per_s=_mean_rate([one.layer_bytes_per_s for one in speeds]),
        overhead_s=fmean(one.overhead_s for one in speeds),
        source=f"{first.source}, mean of {len(speeds)} equal devices",
    )


def _mean_rate(rates: Sequence[float | None]) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return 1 / fmean(1 / rate for rate in known) if len(known) == len(rates) else None
