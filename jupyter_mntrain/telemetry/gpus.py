"""GPUs: reads their state through NVML."""

from __future__ import annotations

import ctypes
import platform
import re
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from jupyter_mntrain.model.records.job import Leftover
from jupyter_mntrain.model.records.node import Gpu, GpuProcess
from jupyter_mntrain.model.sources.allocation_limits import read_allocation_limits
from jupyter_mntrain.telemetry.interfaces import SYSFS
from jupyter_mntrain.telemetry.kernel_files import kernel_text
from jupyter_mntrain.telemetry.offered_gpus import visible_gpus, visible_instances

SLOWED = 0x8 | 0x20 | 0x40 | 0x80
"""Hardware slowdown, thermal limit of the driver and of the hardware, power brake: ``nvml.h``,
``nvmlClocksThrottleReason…``."""

CLOCKS_UNKNOWN = "clocks unknown"

DRAWING_JOB_BYTES = 2 * 2**30
"""A process that draws and computes on a GPU (C+G: a browser that decodes video, a desktop's
sharing) is a job of somebody's if it holds this much of its memory; such desktops hold up to 1
GiB (nvidia-smi)."""

_MPS_SERVER = "nvidia-cuda-mps"
"""The kernel keeps 15 letters of a program's name."""

RETRY_S = 10.0
"""Interval of asking again for NVIDIA's driver where it does not answer: it may load after the
agent."""

_AMD = "0x1002"
_GPU_CLASSES = ("0x03", "0x12")
"""PCI classes: display controllers, and processing accelerators (``pci_ids.h``)."""

_ENOUGH = 4 << 30

_WSL = re.compile(r"microsoft", re.IGNORECASE)
_UNMAPPED_KERNELS = re.compile(r"microsoft|tegra", re.IGNORECASE)
"""Kernels of WSL2 and of Jetsons, by their release. CUDA's calls that map memory fail there: on
WSL2 with some cards and drivers (pytorch#192330), which do not tell (syv-ai/qwen38-27b-rtx3090#2).
"""
_VGPU_NAME = re.compile(r"-\d+[ABCQ]$")
_VGPU_MODE = 2
"""``GRID T4-16Q``, ``NVIDIA L40S-48C``, ``NVIDIA A100-3-20C`` (vGPU user guide);
``NVML_GPU_VIRTUALIZATION_MODE_VGPU``. Memory is mapped on those that have a card to themselves and
a plugin that allows it, which a guest cannot see."""

_VERSION_MISMATCH = 18
"""``NVML_ERROR_LIB_RM_VERSION_MISMATCH``."""
_GPU_IS_LOST, _UNKNOWN = 15, 999
"""``NVML_ERROR_GPU_IS_LOST``; ``NVML_ERROR_UNKNOWN``, which drivers also answer for a lost card."""


def has_driver() -> bool:
    """Whether NVIDIA's driver is installed. Without it, ``pynvml`` only costs 1.5 MB of memory."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


def has_amd_gpu(sysfs: Path = SYSFS) -> bool:
    """Whether this machine has an AMD GPU, with or without its driver loaded.

    One that the driver gives less than 4 GiB is a processor's own graphics: nobody trains on it.

    Args:
        sysfs: mount point of sysfs.
    """
    return any(
        kernel_text(device / "vendor") == _AMD
        and kernel_text(device / "class").startswith(_GPU_CLASSES)
        and int(kernel_text(device / "mem_info_vram_total") or _ENOUGH) >= _ENOUGH
        for device in (sysfs / "bus" / "pci" / "devices").glob("*")
    )


def gpus_of(environment: Mapping[str, str]) -> GpuReader:
    """Return a reader of the GPUs that a process with this environment may use."""
    limits = read_allocation_limits(environment)
    return GpuReader(limits.gpus, is_scheduled=limits.is_scheduled)


class Driver(NamedTuple):
    """The version of NVIDIA's driver.

    Args:
        cuda: the newest CUDA that it is for, ``12.8``; ``None`` if it does not say.
    """

    version: str
    cuda: str | None = None


class GpuReader:
    """Reads GPUs. If the driver does not answer, it retries later, since it may be loaded by then.

    Args:
        visible: ``CUDA_VISIBLE_DEVICES`` of the process that may use them; ``None``: all GPUs.
        retry_s: interval of trying again.
        is_scheduled: a scheduler has said which are visible.
        kernel: its release, as ``uname -r`` has it.
    """

    def __init__(
        self,
        visible: str | None = None,
        retry_s: float = RETRY_S,
        *,
        is_scheduled: bool = False,
        kernel: str = platform.release(),
    ) -> None:
        self._kernel = kernel
        self._visible, self._is_scheduled = visible, is_scheduled
        self._retry_s = retry_s
        self._tried_s = time.monotonic()
        self._nvml: Any = None
        self.note: str | None = None
        """Why there are no GPUs, or fewer than the machine has."""
        self.error: int | None = None
        """NVML's number of why the driver does not answer; ``None`` also without a driver."""
        self.indices: tuple[int, ...] = ()
        """Indices of the usable cards when last read, including those that did not answer."""
        self.driver: Driver | None = None
        self._connect()

    def _connect(self) -> None:
        """Initialize NVML. Its module stays unloaded while there is no driver."""
        self._tried_s = time.monotonic()
        if "pynvml" not in sys.modules and not has_driver():
            self.note = _no_driver(self._kernel)
            return
        try:
            import pynvml
        except ImportError:
            self.note = "nvidia-ml-py is not installed"
            return
        try:
            pynvml.nvmlInit()
            self.driver = _read_driver(pynvml)
        except pynvml.NVMLError as error:
            self._fail(error)
            return
        self._nvml, self.error = pynvml, None

    def read(self) -> tuple[Gpu, ...]:
        """Read all GPUs. Fields that a card does not report are ``None``, never 0.

        A card that fell off the bus, or is split into MIG instances, is omitted, and named in
        ``note``; a MIG instance that is named as visible stands in the place of its card.
        """
        if self._nvml is None and time.monotonic() - self._tried_s >= self._retry_s:
            self._connect()
        if self._nvml is None:
            return ()
        nvml = self._nvml
        try:
            uuids = {index: self._uuid(index) for index in range(nvml.nvmlDeviceGetCount())}
        except nvml.NVMLError as error:
            self._fail(error)
            self._optional(nvml.nvmlShutdown)
            self._nvml = None
            return ()
        if instances := visible_instances(self._visible):
            return self._read_instances(instances)
        visible = visible_gpus(self._visible, uuids, is_scheduled=self._is_scheduled)
        self.indices = tuple(sorted(visible))
        gpus, lost = [], []
        for index in self.indices:
            try:
                if self._is_split(index):
                    lost.append(_split(index))
                else:
                    gpus.append(self._read_one(index, uuids[index], self._handle(index)))
            except nvml.NVMLError as error:
                lost.append(_lost(index, error, self._kernel))
        self.note = "; ".join(lost) or (None if gpus else _none_of(len(uuids)))
        return tuple(gpus)

    def _read_instances(self, instances: Sequence[str]) -> tuple[Gpu, ...]:
        """Read the MIG instance that CUDA offers: the first of them."""
        nvml, (uuid, *others) = self._nvml, instances
        self.indices = ()
        try:
            handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
            card = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
            index = nvml.nvmlDeviceGetIndex(card)
            gpu = self._read_one(index, uuid, handle)
        except nvml.NVMLError as error:
            self.note = f"the MIG instance {uuid} does not answer ({error}): see nvidia-smi -L"
            return ()
        self.indices = (index,)
        self.note = _not_offered(others) if others else None
        return (gpu,)

    def _fail(self, error: Exception) -> None:
        self.error, self.indices = getattr(error, "value", _UNKNOWN), ()
        self.note = _no_answer(error)

    @property
    def nvml(self) -> Any:
        """The module ``pynvml``; ``None`` without a driver."""
        return self._nvml

    def held_by(self, pids: Collection[int]) -> tuple[Leftover, ...]:
        """Return which of the given processes still hold GPU memory, according to the driver."""
        if self._nvml is None or not pids:
            return ()
        count = self._optional(self._nvml.nvmlDeviceGetCount) or 0
        return tuple(
            _holds(process, index)
            for index in range(count)
            for process in self._optional(partial(self._processes_on, index)) or ()
            if process.pid in pids
        )

    def slowed_by(self, uuid: str) -> str:
        """Return what lowers a GPU's clocks now, for people; empty if nothing does.

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

    def _uuid(self, index: int) -> str:
        """Return a GPU's UUID; empty if the card fell off the bus."""
        nvml = self._nvml
        found = self._optional(lambda: nvml.nvmlDeviceGetUUID(self._handle(index)))
        return str(found or "")

    def _is_split(self, index: int) -> bool:
        """Whether CUDA sees only the card's MIG instances."""
        nvml = self._nvml
        modes = self._optional(lambda: nvml.nvmlDeviceGetMigMode(self._handle(index)))
        return bool(modes and modes[0])

    def _processes_on(self, index: int) -> Any:
        return self._processes(self._handle(index))

    def _processes(self, handle: Any) -> Any:
        return self._nvml.nvmlDeviceGetComputeRunningProcesses(handle)

    def _jobs(self, handle: Any) -> list[Any]:
        """Return the computing processes, except for the desktop's and the CUDA MPS server.

        The desktop draws and uses CUDA as well; the server stays when its clients have left. Both
        are listed separately.
        """
        nvml = self._nvml
        clients = self._optional(lambda: nvml.nvmlDeviceGetMPSComputeRunningProcesses(handle)) or ()
        drawing = self._optional(lambda: nvml.nvmlDeviceGetGraphicsRunningProcesses(handle)) or ()
        draws = {process.pid for process in drawing}
        return [
            process
            for process in (*(self._optional(partial(self._processes, handle)) or ()), *clients)
            if process.pid not in draws
            or (getattr(process, "usedGpuMemory", None) or 0) >= DRAWING_JOB_BYTES
            if not (process_on_gpu(process.pid).command or "").startswith(_MPS_SERVER)
        ]

    def _handle(self, index: int) -> Any:
        return self._nvml.nvmlDeviceGetHandleByIndex(index)

    def _read_one(self, index: int, uuid: str, handle: Any) -> Gpu:
        nvml = self._nvml
        total, used, is_unified = self._memory(handle)
        rates = self._optional(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100)
        processes = self._jobs(handle)
        name = nvml.nvmlDeviceGetName(handle)
        mode = self._optional(lambda: nvml.nvmlDeviceGetVirtualizationMode(handle))
        is_vgpu = mode == _VGPU_MODE or _VGPU_NAME.search(name) is not None
        return Gpu(
            index=index,
            uuid=uuid,
            name=name,
            memory_total_bytes=total,
            memory_used_bytes=used,
            utilization=rates,
            power_w=self._optional(lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000),
            temperature_c=self._optional(
                lambda: float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
            ),
            processes=tuple(map(process_on_gpu, sorted({p.pid for p in processes}))),
            compute_capability=self._optional(
                lambda: tuple(nvml.nvmlDeviceGetCudaComputeCapability(handle))
            ),
            is_unified=is_unified,
            # A GB10's driver runs out of memory early then (dgx-spark-playbooks#97).
            maps_memory=not (is_vgpu or is_unified or _UNMAPPED_KERNELS.search(self._kernel)),
        )

    def _memory(self, handle: Any) -> tuple[int, int, bool]:
        """Return (total, used) bytes, and whether this is the machine's own memory."""
        try:
            memory = self._nvml.nvmlDeviceGetMemoryInfo(handle)
        except self._nvml.NVMLError_NotSupported:
            # A GPU that shares the machine's memory (Grace, Jetson) has none of its own.
            shared = psutil.virtual_memory()
            return shared.total, shared.total - shared.available, True
        return memory.total, memory.used, False

    def _optional(self, read: Callable[[], Any]) -> Any:
        """What NVML answers; ``None`` if it, or an older pynvml, cannot tell."""
        try:
            return read()
        except (self._nvml.NVMLError, AttributeError):
            return None


def _read_driver(nvml: Any) -> Driver:
    version = nvml.nvmlSystemGetDriverVersion()
    try:
        cuda = nvml.nvmlSystemGetCudaDriverVersion_v2()  # 12080
    except nvml.NVMLError:  # containers may lack the library that says it
        return Driver(version)
    return Driver(version, f"{cuda // 1000}.{cuda % 1000 // 10}")


def _no_driver(kernel: str) -> str:
    if "tegra" in kernel:
        return "no NVML for this Jetson's GPU: update to JetPack 6 or newer"
    return "no NVIDIA GPU: no driver is installed"


def _no_answer(error: Exception) -> str:
    if getattr(error, "value", None) == _VERSION_MISMATCH:
        return (
            "driver/library version mismatch: NVIDIA's driver was updated while the old one runs; "
            "restart this machine"
        )
    return f"NVIDIA's driver does not answer: {error}"


def _split(index: int) -> str:
    return (
        f"GPU {index} is split into MIG instances, which mntrain does not use: "
        f"nvidia-smi -i {index} -mig 0 makes it whole"
    )


def _not_offered(instances: Sequence[str]) -> str:
    return f"CUDA offers a process one MIG instance, so these are not used: {', '.join(instances)}"


def _lost(index: int, error: Exception, kernel: str) -> str:
    if _WSL.search(kernel):
        # As where Windows has another of its GPUs in the TCC mode (WSL#13027).
        return (
            f"GPU {index} does not answer in WSL ({error}): in Windows, update the NVIDIA driver, "
            "and put all GPUs into the WDDM mode: nvidia-smi -dm 0"
        )
    if getattr(error, "value", None) in (_GPU_IS_LOST, _UNKNOWN):
        return (
            f"GPU {index} fell off the bus ({error}): restart this machine; if it happens again, "
            "check its seat, power and cooling"
        )
    return f"GPU {index} does not answer ({error}): see nvidia-smi -q -i {index}"


def _none_of(count: int) -> str:
    if not count:
        return "the driver sees no GPU"
    return f"CUDA_VISIBLE_DEVICES of the agent names none of this machine's GPUs ({count})"


def process_on_gpu(pid: int) -> GpuProcess:
    """Return a process's user and name, if permitted and visible in this container."""
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
