"""Nominal speeds: what a plan expects of devices that were not measured. Pure."""

from __future__ import annotations

from typing import Final

from jupyter_mntrain.model.records.plan import DeviceSpeed
from jupyter_mntrain.telemetry.device.peaks import known_peak

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
