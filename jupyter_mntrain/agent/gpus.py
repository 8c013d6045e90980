"""GPUs by NVML. A node without a driver has none, and says why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jupyter_mntrain.model.node import Gpu


class GpuReader:
    """Reads every GPU; NVML is initialised once, at the first reading that can."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self.note: str | None = None
        self.driver: str | None = None
        try:
            import pynvml
        except ImportError:
            self.note = "nvidia-ml-py is not installed"
            return
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            self.note = f"no NVIDIA GPU: {error}"
            return
        self._nvml = pynvml
        self.driver = _text(pynvml.nvmlSystemGetDriverVersion())

    def read(self) -> tuple[Gpu, ...]:
        """All GPUs now. A field a card does not report is ``None``, never 0."""
        if self._nvml is None:
            return ()
        return tuple(self._read_one(index) for index in range(self._nvml.nvmlDeviceGetCount()))

    def _read_one(self, index: int) -> Gpu:
        nvml = self._nvml
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        rates = self._optional(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100)
        processes = self._optional(lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle)) or []
        return Gpu(
            index=index,
            uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
            name=_text(nvml.nvmlDeviceGetName(handle)),
            memory_total_bytes=memory.total,
            memory_used_bytes=memory.used,
            utilisation=rates,
            power_w=self._optional(lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000),
            temperature_c=self._optional(
                lambda: float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
            ),
            process_pids=tuple(sorted(p.pid for p in processes)),
        )

    def _optional(self, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except self._nvml.NVMLError:
            return None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
