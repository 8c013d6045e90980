"""Speeds: what a plan expects of devices and links, measured, of a job, or guessed. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import permutations
from typing import Final, NamedTuple

import msgspec

from jupyter_mntrain.model.records.node import Capacity, Interface, Latency, NodeInfo
from jupyter_mntrain.model.records.plan import (
    DeviceMeasurement,
    DeviceSpeed,
    LinkSpeed,
    MeasuredLayer,
)
from jupyter_mntrain.plan.link_capacities import LinkCapacities
from jupyter_mntrain.plan.networks.outdated import known_links, marked_at_receivers
from jupyter_mntrain.recipe.memory import StageShape, saved_bytes
from jupyter_mntrain.recipe.sections import (
    DataSection,
    ModelSection,
    PipelineSection,
    Recipe,
    TrainSection,
)
from jupyter_mntrain.telemetry.device.peaks import known_peak
from jupyter_mntrain.telemetry.formulas import (
    FORWARD_AND_BACKWARD,
    ModelShape,
    layer_flops_per_token,
)

# Nominal speeds: what a plan expects of devices that were not measured. Pure.


SHARE_OF_PEAK: Final = 0.5
"""What large matrix products achieve of a data sheet's peak, roughly."""

ASSUMED_GPU_FLOPS_PER_S: Final = 20e12
"""Of a GPU that is in no table."""

ASSUMED_CORE_FLOPS_PER_S: Final = 30e9
"""Of one CPU core, in matrix products of float32, roughly."""


def nominal_gpu_speed(name: str, dtype: str, *, tf32: bool = False) -> DeviceSpeed:
    """Half of the peak in the data sheet; an assumption if there is none.

    Args:
        name: as its driver spells it.
        dtype: of the matrices.
        tf32: whether float32 matrices are multiplied as TF32, where the GPU can.
    """
    peak = known_peak(name, dtype, tf32=tf32)
    if peak is None:
        return DeviceSpeed(flops_per_s=ASSUMED_GPU_FLOPS_PER_S, source="assumed: in no table")
    return DeviceSpeed(
        flops_per_s=SHARE_OF_PEAK * peak.flops_per_s, source=f"half of its peak ({peak.source})"
    )


def nominal_cpu_speed(cores: int, ranks: int) -> DeviceSpeed:
    """A rank's part of its node's cores.

    Args:
        ranks: that share them.
    """
    flops = ASSUMED_CORE_FLOPS_PER_S * max(1, cores) / max(1, ranks)
    return DeviceSpeed(flops_per_s=flops, source="assumed from its number of cores")


# Known speeds: of devices and links as a job had them, instead of what nodes report of them.


class KnownSpeeds(NamedTuple):
    """Speeds where a job has measured them.

    Args:
        devices: by node and device, as a plan names them; of several ranks on one, the slowest.
        links: by the nodes of sender and receiver; of several ranks, the slowest.
    """

    devices: Mapping[tuple[str, str], DeviceSpeed] = {}
    links: Mapping[tuple[str, str], LinkSpeed] = {}


NOTHING = KnownSpeeds()


# Link speeds: what a plan expects of every link between participants, or guesses. Pure.


Pair = tuple[int, int]
"""Sending and receiving participant, as indices."""

PAYLOAD_SHARE: Final = 1448 / 1514
"""What TCP with timestamps carries of each Ethernet frame; assumed of links not measured."""

ASSUMED_BYTES_PER_S: Final[Mapping[str, float]] = {"wireless": 100e6 / 8, "loopback": 16e9 / 8}
"""Of an interface that does not state its speed, by kind; 1 Gbit/s of other kinds."""

ASSUMED_LATENCY_S: Final[Mapping[str, float]] = {"wireless": 2e-3, "loopback": 3e-5}
"""Of a link that was not measured, by the interface's kind; 0.1 ms of other kinds."""


def link_speeds(
    nodes: Sequence[NodeInfo],
    interfaces: Sequence[Interface],
    given: Capacity | None = None,
    *,
    is_for_many_streams: bool = False,
) -> dict[Pair, LinkSpeed]:
    """Return what every ordered pair of participants can expect of its link.

    In this order: what the user gave, what messages of the same backend reached in a benchmark,
    what was measured, what was measured in the other direction, the nominal speed of the slower
    interface, and 1 Gbit/s (wireless 100 Mbit/s, loopback 16 Gbit/s). Only the first three are not
    guesses.

    Args:
        nodes: the participants' nodes, in node-rank order.
        interfaces: the chosen interface of each, see
            :func:`~jupyter_mntrain.plan.interfaces.choose_interfaces`.
        given: the user's figure for all links; ``None`` if there is none.
        is_for_many_streams: for NCCL: prefer what was measured over several connections at once,
            which it has over Ethernet; Gloo has one per pair.
    """
    backend = "nccl" if is_for_many_streams else "gloo"
    known = LinkCapacities(given)
    latencies: dict[tuple[str, str], Latency] = {}
    names = [one.name for one in interfaces]
    for node, name in zip(marked_at_receivers(nodes), names, strict=True):
        interface = next(one for one in node.inventory.interfaces if one.name == name)
        measured = known_links(interface.links, is_for_many_streams=is_for_many_streams)
        benched = known_links([one for one in interface.benched if one.backend == backend])
        links = tuple({one.receiver: one for one in (*measured, *benched)}.values())
        known.add(node.name, interface.given, links)
        latencies |= {(node.name, one.receiver): one.latency for one in links if one.latency}
    found = {}
    for pair in permutations(range(len(nodes)), 2):
        sender, receiver = (nodes[one].name for one in pair)
        ends = interfaces[pair[0]], interfaces[pair[1]]
        latency = latencies.get((sender, receiver)) or latencies.get((receiver, sender))
        bytes_per_s, source, is_measured = _link_rate(
            known.between(sender, receiver), known.between(receiver, sender), ends
        )
        found[pair] = LinkSpeed(
            bytes_per_s=bytes_per_s,
            latency_s=latency.median_s if latency else max(map(_assumed_latency_s, ends)),
            source=source,
            is_measured=is_measured,
        )
    return found


def _link_rate(
    there: Capacity | None, back: Capacity | None, ends: tuple[Interface, Interface]
) -> tuple[float, str, bool]:
    """Payload in bytes per second, its source, and whether it is not a guess."""
    if there is not None:
        return there.payload_bytes_per_s, _source(there), True
    if back is not None:
        return back.payload_bytes_per_s, "measured in the other direction only", False
    slower = min(ends, key=_claimed_bytes_per_s)
    source = "its nominal speed" if slower.speed_mbit_per_s else "not known, so it is assumed"
    return _claimed_bytes_per_s(slower) * PAYLOAD_SHARE, source, False


def _source(capacity: Capacity) -> str:
    if capacity.source == "given":
        return "given"
    if capacity.condition in (None, "alone"):
        return "measured"
    return f"measured {capacity.condition}: it may be faster"


def _claimed_bytes_per_s(interface: Interface) -> float:
    claimed = max(0, interface.speed_mbit_per_s or 0) * 1e6 / 8
    return claimed or ASSUMED_BYTES_PER_S.get(interface.kind, 1e9 / 8)


def _assumed_latency_s(interface: Interface) -> float:
    return ASSUMED_LATENCY_S.get(interface.kind, 1e-4)


# Device speeds: what a node's device will do for a rank, by what was measured of it. Pure.


HEAD_DIM = 64
"""Of the layers that are measured."""

FREE_BYTES_PER_S = 1e15
"""Of memory that took no time beside the products; JSON knows no infinity."""

MOST_SLOWER = 1.25
"""A job whose ranks computed up to this much longer than expected corrects what was measured."""

BOTH_PASSES = 5
"""Times that what is saved passes through memory in both passes, as in a stage's cost."""


def speed_of(
    info: NodeInfo,
    gpu: int | None,
    dtype: str,
    *,
    ranks: int = 1,
    hidden_size: int | None = None,
    tokens: int | None = None,
    torch: str | None = None,
    is_corrected: bool = True,
) -> DeviceSpeed | None:
    """What a device will do for one rank; ``None`` if it was not measured in this dtype.

    Args:
        gpu: its index; ``None``: the CPU.
        ranks: that train on the node at once. The cores are shared among them: where another number
            of ranks was measured, the speed of all of them is shared.
        hidden_size, tokens: of the layers and microbatches that it will compute; those that were
            measured and are most like them count. ``None``: the largest.
        torch: version that the job will run; one measured with it is preferred.
        is_corrected: by what a job achieved since it was measured. One that was faster proves that
            the device is; one that was somewhat slower tells what training costs beyond its layers,
            and one that was much slower was held up by something else, and corrects nothing.
    """
    found = measurement_of(info, gpu, dtype, ranks=ranks, torch=torch)
    if found is None:
        return None
    return speed_by(
        found, ranks=ranks, hidden_size=hidden_size, tokens=tokens, is_corrected=is_corrected
    )


def speed_by(
    found: DeviceMeasurement,
    *,
    ranks: int = 1,
    hidden_size: int | None = None,
    tokens: int | None = None,
    is_corrected: bool = True,
) -> DeviceSpeed:
    """What a device will do for one rank by a measurement of it, as in :func:`speed_of`."""
    speed = _speed(found, hidden_size, tokens)
    if is_corrected and (slower := correction(found)) is not None and found.achieved is not None:
        speed = _slowed(speed, slower, f"corrected by job {found.achieved.job_id}")
        speed = msgspec.structs.replace(speed, is_measured=True)
    share = 1.0 if found.gpu is not None else ranks / found.ranks
    if share == 1.0:
        return speed
    shared = _slowed(speed, share, f"shared by {ranks} ranks")
    # Their memory and caches are shared otherwise than their cores.
    return msgspec.structs.replace(shared, overhead_s=speed.overhead_s, is_measured=False)


def correction(one: DeviceMeasurement) -> float | None:
    """How much slower than measured the device is by its newest job; ``None``: it says nothing."""
    rate = one.achieved
    if rate is None or rate.time_s <= one.time_s:
        return None
    return rate.slower if 0 < rate.slower <= MOST_SLOWER else None


def _slowed(speed: DeviceSpeed, times: float, why: str) -> DeviceSpeed:
    def slow(rate: float | None) -> float | None:
        return None if rate is None else rate / times

    return msgspec.structs.replace(
        speed,
        flops_per_s=speed.flops_per_s / times,
        bytes_per_s=slow(speed.bytes_per_s),
        layer_bytes_per_s=slow(speed.layer_bytes_per_s),
        overhead_s=speed.overhead_s * times,
        source=f"{speed.source}, {why}",
    )


def measurement_of(
    info: NodeInfo, gpu: int | None, dtype: str, *, ranks: int = 1, torch: str | None = None
) -> DeviceMeasurement | None:
    """The measurement that says most about a device, as in :func:`speed_of`."""
    found = [one for one in info.inventory.devices if (one.gpu, one.dtype) == (gpu, dtype)]

    def likeness(one: DeviceMeasurement) -> tuple[bool, float, float]:
        return (
            torch is not None and one.torch == torch,
            0.0 if gpu is not None else -abs(math.log(one.ranks / ranks)),
            one.time_s,
        )

    return max(found, key=likeness, default=None)


def layer_like(
    one: DeviceMeasurement, hidden_size: int | None, tokens: int | None
) -> MeasuredLayer | None:
    """The measured layer that is most like those that will be computed, as in :func:`speed_of`."""
    alike = _most_alike(one.layers, hidden_size)
    return min(alike, key=lambda layer: _distance(layer.tokens, tokens), default=None)


def layer_flops_per_s(layer: MeasuredLayer) -> float:
    """What a measured layer achieved: model FLOPs of both passes over their time."""
    return _flops(layer) / (layer.forward_s + layer.backward_s)


def _speed(one: DeviceMeasurement, hidden_size: int | None, tokens: int | None) -> DeviceSpeed:
    source = f"measured, {one.dtype}"
    if one.disturbed:
        source += f", {one.disturbed}"
    near = layer_like(one, hidden_size, tokens)
    if near is None:
        return DeviceSpeed(
            flops_per_s=one.flops_per_s,
            bytes_per_s=one.bytes_per_s,
            overhead_s=0.0,
            source=source,
            is_measured=not one.disturbed,
        )
    alike = _most_alike(one.layers, hidden_size)
    overhead_s, layer_bytes_per_s = _fitted(one.dtype, near, alike)
    return DeviceSpeed(
        flops_per_s=near.product_flops_per_s,
        bytes_per_s=one.bytes_per_s,
        overhead_s=overhead_s,
        layer_bytes_per_s=layer_bytes_per_s,
        source=source,
        is_measured=not one.disturbed,
    )


def _most_alike(layers: Iterable[MeasuredLayer], hidden_size: int | None) -> list[MeasuredLayer]:
    """The layers of one width, of which there are several with different numbers of tokens."""
    found = list(layers)
    widths = {layer.hidden_size for layer in found}
    if not widths:
        return []
    width = min(widths, key=lambda width: _distance(width, hidden_size))
    return [layer for layer in found if layer.hidden_size == width]


def _distance(have: int, wanted: int | None) -> float:
    """How unlike two sizes are; the largest is best where none is wanted."""
    return -have if wanted is None else abs(math.log(have / wanted))


def _fitted(
    dtype: str, near: MeasuredLayer, alike: Sequence[MeasuredLayer]
) -> tuple[float, float | None]:
    """Overhead, and bytes per second of what is saved, with which two measured layers take as long
    as they did: the one like those that will be computed, and the smallest, or the next one.

    Each takes ``3 · overhead + FLOPs / rate + 5 · saved / bandwidth``.
    """
    other = min((one for one in alike if one is not near), key=lambda one: one.tokens, default=None)
    left_s, moved = _besides_products(near), BOTH_PASSES * _saved_bytes(dtype, near)
    if other is None:
        return 0.0, _rate(moved, left_s)
    other_s, other_moved = _besides_products(other), BOTH_PASSES * _saved_bytes(dtype, other)
    per_byte = (left_s - other_s) / (moved - other_moved)
    if per_byte <= 0:
        return max(0.0, left_s) / FORWARD_AND_BACKWARD, FREE_BYTES_PER_S
    overhead_s = left_s - per_byte * moved
    if overhead_s <= 0:
        return 0.0, _rate(moved, left_s)
    return overhead_s / FORWARD_AND_BACKWARD, 1.0 / per_byte


def _rate(moved: float, seconds: float) -> float:
    return min(moved / seconds, FREE_BYTES_PER_S) if seconds > 0 else FREE_BYTES_PER_S


def _besides_products(layer: MeasuredLayer) -> float:
    """Seconds of both passes that the products alone do not explain."""
    return layer.forward_s + layer.backward_s - _flops(layer) / layer.product_flops_per_s


def _flops(layer: MeasuredLayer) -> float:
    return layer.tokens * layer_flops_per_token(_shape(layer), layer.tokens)


def _saved_bytes(dtype: str, layer: MeasuredLayer) -> int:
    recipe = Recipe(
        model=ModelSection(dtype="bfloat16" if dtype == "bfloat16" else "float32"),
        data=DataSection(sequence_length=layer.tokens),
        pipeline=PipelineSection(microbatches=1),
        train=TrainSection(batch_size=1),
    )
    stage = StageShape(parameters=(), layers=1, has_first=False, has_last=False, in_flight=1)
    return saved_bytes(_shape(layer), recipe, stage)


def _shape(layer: MeasuredLayer) -> ModelShape:
    heads = layer.hidden_size // HEAD_DIM
    return ModelShape(
        layers=1,
        hidden_size=layer.hidden_size,
        intermediate_size=layer.intermediate_size,
        heads=heads,
        key_value_heads=heads,
        head_dim=HEAD_DIM,
        vocabulary_size=0,
    )
