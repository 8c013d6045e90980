"""GPU health: reads errors, clocks and users of GPUs from NVML. Changes nothing.

Written from NVML's documentation and tested with recorded answers; it has not run on a card yet.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import msgspec

from jupyter_mntrain.model.records.evidence import GpuHealth
from jupyter_mntrain.telemetry.gpus import process_on_gpu

_SLOWDOWNS = {
    0x4: "power limit",
    0x8: "hardware slowdown",
    0x20: "too hot (driver)",
    0x40: "too hot (hardware)",
    0x80: "power brake",
}
"""``nvml.h``, ``nvmlClocksThrottleReason…``."""

_UNCORRECTED, _SINCE_BOOT = 1, 0
"""``NVML_MEMORY_ERROR_TYPE_UNCORRECTED``, ``NVML_VOLATILE_ECC``."""


def gpu_health(
    nvml: Any, indices: Iterable[int], ours: Collection[int] = ()
) -> tuple[GpuHealth, ...]:
    """Read the health of these GPUs; nothing without NVML.

    Args:
        nvml: the module ``pynvml``, or ``None``.
        ours: processes that are not others.
    """
    return () if nvml is None else tuple(_of_card(nvml, index, ours) for index in indices)


def _of_card(nvml: Any, index: int, ours: Collection[int]) -> GpuHealth:
    """Read the health of one GPU. What it does not report stays unknown."""
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        total = nvml.nvmlDeviceGetMemoryInfo(handle).total
    except nvml.NVMLError_NotSupported:
        total = 0  # it shares the machine's memory
    except nvml.NVMLError as error:
        return GpuHealth(index=index, trouble=str(error))

    def told(name: str, *more: object) -> Any:
        try:
            return getattr(nvml, name)(handle, *more)
        except (nvml.NVMLError, AttributeError):  # an older driver, or an older library
            return None

    reasons = told("nvmlDeviceGetCurrentClocksThrottleReasons") or 0
    remapped = told("nvmlDeviceGetRemappedRows")
    retired = told("nvmlDeviceGetRetiredPagesPendingStatus")
    users = told("nvmlDeviceGetComputeRunningProcesses") or ()
    return GpuHealth(
        index=index,
        temperature_c=told("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
        slowed_by=tuple(word for bit, word in _SLOWDOWNS.items() if reasons & bit),
        uncorrected_errors=told("nvmlDeviceGetTotalEccErrors", _UNCORRECTED, _SINCE_BOOT),
        # (corrected rows, uncorrected rows, one is pending, one failed)
        repairs_pending=bool(retired or (remapped and (remapped[2] or remapped[3]))),
        memory_bytes=total or None,
        others=tuple(
            msgspec.structs.replace(
                process_on_gpu(one.pid), memory_bytes=getattr(one, "usedGpuMemory", None)
            )
            for one in users
            if one.pid not in ours
        ),
    )
