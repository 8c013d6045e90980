"""GPUs: reads them through NVML."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import psutil

from jupyter_mntrain.model.records.leftover import Leftover
from jupyter_mntrain.model.records.node import Gpu, GpuProcess

SLOWED = 0x8 | 0x20 | 0x40 | 0x80
"""Hardware slowdown, thermal limit of the driver and of the hardware, power brake: ``nvml.h``,
``nvmlClocksThrottleReason…``."""

CLOCKS_UNKNOWN = "clocks unknown"


def has_driver() -> bool:
    """Whether NVIDIA's driver is installed. Without it, ``pynvml`` only costs 1.5 MB of memory."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


class GpuReader:
    """Reads all GPUs; initializes NVML once."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self.note: str | None = None
        """Why there are no GPUs, or fewer than before."""
        self.driver: str | None = None
        if "pynvml" not in sys.modules and not has_driver():
            self.note = "no NVIDIA GPU: no driver is installed"
            return
        try:
            import pynvml
        except ImportError:
            self.note = "nvidia-ml-py is not installed"
            return
        try:
            pynvml.nvmlInit()
            self.driver = pynvml.nvmlSystemGetDriverVersion()
        except pynvml.NVMLError as error:
            self.note = f"no NVIDIA GPU: {error}"
            return
        self._nvml = pynvml

    def read(self) -> tuple[Gpu, ...]:
        """Read all GPUs. Fields that a card does not report are ``None``, never 0.

        A card that fell off the bus is omitted, and named in ``note``.
        """
        if self._nvml is None:
            return ()
        count = self._optional(self._nvml.nvmlDeviceGetCount) or 0
        gpus, lost = [], []
        for index in range(count):
            try:
                gpus.append(self._read_one(index))
            except self._nvml.NVMLError as error:
                lost.append(f"GPU {index}: {error}")
        self.note = "; ".join(lost) or (None if gpus else "the driver sees no GPU")
        return tuple(gpus)

    @property
    def nvml(self) -> Any:
        """The module ``pynvml``; ``None`` without a driver."""
        return self._nvml

    def held_by(self, pids: Collection[int]) -> tuple[Leftover, ...]:
        """Return those of the given processes that still hold GPU memory, says the driver."""
        if self._nvml is None or not pids:
            return ()
        count = self._optional(self._nvml.nvmlDeviceGetCount) or 0
        return tuple(
            _holds(process, index)
            for index in range(count)
            for process in self._optional(partial(self._processes, index)) or ()
            if process.pid in pids
        )

    def slowed_by(self, uuid: str) -> str:
        """What lowers a GPU's clocks now, for people; empty if nothing does.

        A power limit is not told: a busy card that keeps to it runs at its sustained clock.
        """
        nvml = self._nvml
        if nvml is None:
            return CLOCKS_UNKNOWN
        mask = self._optional(
            lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(
                nvml.nvmlDeviceGetHandleByUUID(uuid)
            )
        )
        if mask is None:
            return CLOCKS_UNKNOWN
        return "clocks lowered by the hardware" if mask & SLOWED else ""

    def _processes(self, index: int) -> Any:
        handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
        return self._nvml.nvmlDeviceGetComputeRunningProcesses(handle)

    def _read_one(self, index: int) -> Gpu:
        nvml = self._nvml
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        total, used = self._memory(handle)
        rates = self._optional(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100)
        processes = self._optional(partial(self._processes, index)) or []
        return Gpu(
            index=index,
            uuid=nvml.nvmlDeviceGetUUID(handle),
            name=nvml.nvmlDeviceGetName(handle),
            memory_total_bytes=total,
            memory_used_bytes=used,
            utilization=rates,
            power_w=self._optional(lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000),
            temperature_c=self._optional(
                lambda: float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
            ),
            processes=tuple(map(process_on_gpu, sorted({p.pid for p in processes}))),
        )

    def _memory(self, handle: Any) -> tuple[int, int]:
        """Return (total, used) bytes."""
        try:
            memory = self._nvml.nvmlDeviceGetMemoryInfo(handle)
        except self._nvml.NVMLError_NotSupported:
            # A GPU that shares the machine's memory (Grace, Jetson) has none of its own.
            shared = psutil.virtual_memory()
            return shared.total, shared.total - shared.available
        return memory.total, memory.used

    def _optional(self, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except self._nvml.NVMLError:
            return None


def process_on_gpu(pid: int) -> GpuProcess:
    """Read a process's user and name, if permitted and visible in this container."""
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            return GpuProcess(pid=pid, user=process.username(), command=process.name())
    except psutil.Error:
        return GpuProcess(pid=pid)


def _holds(process: Any, index: int) -> Leftover:
    size = getattr(process, "usedGpuMemory", None)
    memory = "memory" if size is None else f"{size / 2**20:.0f} MiB"
    try:
        state = str(psutil.Process(process.pid).status())
    except psutil.Error:
        state = "gone"
    return Leftover(pid=process.pid, command=f"still holds {memory} of GPU {index}", status=state)
