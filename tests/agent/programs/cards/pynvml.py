"""NVML of a machine with two idle cards, for agents of tests where there is none.

``CARD_CAPABILITY`` in its environment is their compute capability, ``CARD_COUNT`` how many the
driver shows, ``CARD_FIRST`` the number of the first of them in the machine, and
``CARD_PIDS`` who computes on each.
"""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

COUNT = int(os.environ.get("CARD_COUNT", "2"))
FIRST = int(os.environ.get("CARD_FIRST", "0"))
PIDS = os.environ.get("CARD_PIDS", "").split()
INSTANCE = "MIG-0"
CAPABILITY = [int(part) for part in os.environ.get("CARD_CAPABILITY", "8.6").split(".")]
MEMORY_BYTES = 24 << 30
NVML_TEMPERATURE_GPU = 0


class NVMLError(Exception):
    pass


NVMLError_NotSupported = NVMLError


def _by_uuid(uuid: str) -> int:
    if uuid.startswith("GPU-"):
        return int(uuid.removeprefix("GPU-")) - FIRST
    if uuid != INSTANCE:
        raise NVMLError("Not Found")
    return 0


def _no_nvlink(_: int, __: int) -> int:
    raise NVMLError("Not Supported")


def __getattr__(name: str) -> Any:
    answers: dict[str, Any] = {
        "nvmlInit": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: "570.1",
        "nvmlSystemGetCudaDriverVersion_v2": lambda: 12080,
        "nvmlDeviceGetCount": lambda: COUNT,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetUUID": lambda at: f"GPU-{FIRST + at}",
        "nvmlDeviceGetHandleByUUID": _by_uuid,
        "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": lambda _: 0,
        "nvmlDeviceGetIndex": lambda handle: handle,
        "nvmlDeviceGetMigMode": lambda _: [0, 0],
        "nvmlDeviceGetCudaComputeCapability": lambda _: CAPABILITY,
        "nvmlDeviceGetName": lambda _: "RTX",
        "nvmlDeviceGetVirtualizationMode": lambda _: 0,
        "nvmlDeviceGetMemoryInfo": lambda _: SimpleNamespace(total=MEMORY_BYTES, used=0),
        "nvmlDeviceGetUtilizationRates": lambda _: SimpleNamespace(gpu=0),
        "nvmlDeviceGetPowerUsage": lambda _: 30_000,
        "nvmlDeviceGetTemperature": lambda _, __: 40,
        "nvmlDeviceGetComputeRunningProcesses": lambda _: [
            SimpleNamespace(pid=int(pid), usedGpuMemory=None) for pid in PIDS
        ],
        "nvmlDeviceGetGraphicsRunningProcesses": lambda _: [],
        "nvmlDeviceGetPersistenceMode": lambda _: 1,
        "nvmlDeviceGetVbiosVersion": lambda _: "94.02.71.40.6D",
        "nvmlDeviceGetInforomImageVersion": lambda _: "G001.0000.03.03",
        "nvmlDeviceGetNvLinkState": _no_nvlink,
        "nvmlDeviceGetComputeMode": lambda _: 0,
        "nvmlDeviceGetCurrPcieLinkWidth": lambda _: 16,
        "nvmlDeviceGetMaxPcieLinkWidth": lambda _: 16,
        "nvmlDeviceGetPowerManagementLimit": lambda _: 350_000,
        "nvmlDeviceGetPowerManagementDefaultLimit": lambda _: 350_000,
        "nvmlDeviceGetPciInfo": lambda at: SimpleNamespace(busId=f"00000000:0{at + 1}:00.0"),
    }
    if name in answers:
        return answers[name]
    raise AttributeError(name)
