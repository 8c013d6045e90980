"""Device speeds: the speed that a plan expects of a rank's device, measured or guessed. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from jupyter_mntrain.model.records.node import NodeInfo
from jupyter_mntrain.model.records.plan import (
    CodecSpeed,
    DeviceMeasurement,
    DeviceSpeed,
    MeasuredLayer,
)
from jupyter_mntrain.plan.measured_speeds import (
    correction,
    layer_flops,
    layer_shape,
    measurement_of,
)
from jupyter_mntrain.recipe.memory import StageShape, saved_bytes
from jupyter_mntrain.recipe.sections import (
    DataSection,
    ModelSection,
    PipelineSection,
    Recipe,
    TrainSection,
)
from jupyter_mntrain.recipe.transfers import Format
from jupyter_mntrain.telemetry.device.peaks import known_peak
from jupyter_mntrain.telemetry.formulas import (
    FORWARD_AND_BACKWARD,
)

# Nominal speeds: what a plan expects of devices that were not measured. Pure.


SHARE_OF_PEAK: Final = 0.5
"""Share of a data sheet's peak that large matrix products achieve, roughly."""

ASSUMED_GPU_FLOPS_PER_S: Final = 20e12
"""Speed of a GPU that is not in the table."""

ASSUMED_CORE_FLOPS_PER_S: Final = 30e9
"""Speed of one CPU core in float32 matrix products, roughly."""


def nominal_gpu_speed(name: str, dtype: str, *, tf32: bool = False) -> DeviceSpeed:
    """Return half of the peak in the GPU's data sheet; an assumption if there is none.

    Args:
        name: as its driver spells it.
        dtype: of the matrices.
        tf32: whether float32 matrices are multiplied as TF32, where the GPU can.
    """
    peak = known_peak(name, dtype, tf32=tf32)
    if peak is None:
        return DeviceSpeed(
            flops_per_s=ASSUMED_GPU_FLOPS_PER_S, source="assumed: GPU not in the table"
        )
    return DeviceSpeed(
        flops_per_s=SHARE_OF_PEAK * peak.flops_per_s, source=f"half of its peak ({peak.source})"
    )


def nominal_cpu_speed(cores: int, ranks: int) -> DeviceSpeed:
    """Guess the speed of a rank's share of its node's cores.

    Args:
        ranks: that share them.
    """
    flops = ASSUMED_CORE_FLOPS_PER_S * max(1, cores) / max(1, ranks)
    return DeviceSpeed(flops_per_s=flops, source="assumed from its number of cores")


# Codec: the time in which a device compresses what its stage sends, and the other way. Pure.


FREE_BYTES_PER_S = 1e15
"""Speed of memory whose time cannot be measured; JSON has no infinity."""

PASSES: Final[Mapping[Format, CodecSpeed]] = {
    "bfloat16": CodecSpeed("bfloat16", encoding=1, decoding=1),
    "int8": CodecSpeed("int8", encoding=15, decoding=14),
    "int4": CodecSpeed("int4", encoding=30, decoding=27),
}
"""Passes over the values in memory that count where a device's codec was not measured: those of
float32 on one core, where 1,024 tokens of 1,024 values took 12 and 11, and 19 and 20 ms."""


def encoding_s(speed: DeviceSpeed, form: Format, size_bytes: float) -> float:
    """Return the seconds in which a device makes a message.

    Args:
        size_bytes: of its values as they are computed.
    """
    return 0.0 if form == "none" else size_bytes / _codec(speed, form).encoding


def decoding_s(speed: DeviceSpeed, form: Format, size_bytes: float) -> float:
    """Return the seconds in which a device reads a message, as in :func:`encoding_s`."""
    return 0.0 if form == "none" else size_bytes / _codec(speed, form).decoding


def _codec(speed: DeviceSpeed, form: Format) -> CodecSpeed:
    measured = next((one for one in speed.codecs if one.form == form), None)
    if measured is not None:
        return measured
    rate, passes = speed.bytes_per_s or FREE_BYTES_PER_S, PASSES[form]
    return CodecSpeed(form, rate / passes.encoding, rate / passes.decoding)


# Device speeds: what a node's device will do for a rank, by what was measured of it. Pure.


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
    """Return a device's speed for one rank; ``None`` if it was not measured in this dtype.

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
    """Return a device's speed for one rank by a given measurement, as in :func:`speed_of`."""
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


def _slowed(speed: DeviceSpeed, times: float, why: str) -> DeviceSpeed:
    def slow(rate: float | None) -> float | None:
        return None if rate is None else rate / times

    return msgspec.structs.replace(
        speed,
        flops_per_s=speed.flops_per_s / times,
        bytes_per_s=slow(speed.bytes_per_s),
        layer_bytes_per_s=slow(speed.layer_bytes_per_s),
        overhead_s=speed.overhead_s * times,
        codecs=tuple(one.faster(1 / times) for one in speed.codecs),
        source=f"{speed.source}, {why}",
    )


def layer_like(
    one: DeviceMeasurement, hidden_size: int | None, tokens: int | None
) -> MeasuredLayer | None:
    """Return the measured layer that is most like the job's layers, as in :func:`speed_of`."""
    alike = _most_alike(one.layers, hidden_size)
    return min(alike, key=lambda layer: _distance(layer.tokens, tokens), default=None)


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
            codecs=one.codecs,
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
        codecs=one.codecs,
    )


def _most_alike(layers: Iterable[MeasuredLayer], hidden_size: int | None) -> list[MeasuredLayer]:
    """Return the measured layers of the width nearest to the wanted one."""
    found = list(layers)
    widths = {layer.hidden_size for layer in found}
    if not widths:
        return []
    width = min(widths, key=lambda width: _distance(width, hidden_size))
    return [layer for layer in found if layer.hidden_size == width]


def _distance(have: int, wanted: int | None) -> float:
    """Return how far two sizes are apart; if none is wanted, the largest is nearest."""
    return -have if wanted is None else abs(math.log(have / wanted))


def _fitted(
    dtype: str, near: MeasuredLayer, alike: Sequence[MeasuredLayer]
) -> tuple[float, float | None]:
    """Fit overhead and bytes per second of saved values to the times of two measured layers: the
    one most like the job's, and the smallest other one.

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
    """Return the seconds of both passes that matrix products alone do not explain."""
    return layer.forward_s + layer.backward_s - layer_flops(layer) / layer.product_flops_per_s


def _saved_bytes(dtype: str, layer: MeasuredLayer) -> int:
    recipe = Recipe(
        model=ModelSection(dtype="bfloat16" if dtype == "bfloat16" else "float32"),
        data=DataSection(sequence_length=layer.tokens),
        pipeline=PipelineSection(microbatches=1),
        train=TrainSection(batch_size=1),
    )
    stage = StageShape(parameters=(), layers=1, has_first=False, has_last=False, in_flight=1)
    return saved_bytes(layer_shape(layer), recipe, stage)
