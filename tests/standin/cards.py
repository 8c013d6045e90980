"""A stand-in of NVML: a machine whose cards tell what a test says."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest


class CardError(Exception):
    """What NVML raises.

    Args:
        value: NVML's number of the error.
    """

    def __init__(self, text: str = "", value: int = 999) -> None:
        super().__init__(text)
        self.value = value


class NotSupportedError(CardError):
    """What this card does not tell."""


class FabricInfo(ctypes.Structure):
    """NVML's structure, as far as it is read."""

    _fields_ = (
        ("state", ctypes.c_uint),
        ("status", ctypes.c_uint),
        ("healthMask", ctypes.c_uint),
    )


SETUP: Mapping[str, Any] = {
    "nvmlDeviceGetPersistenceMode": 1,
    "nvmlDeviceGetComputeMode": 0,
    "nvmlDeviceGetCurrPcieLinkWidth": 16,
    "nvmlDeviceGetMaxPcieLinkWidth": 16,
    "nvmlDeviceGetPowerManagementLimit": 350_000,
    "nvmlDeviceGetPowerManagementDefaultLimit": 350_000,
    "nvmlDeviceGetTotalEccErrors": 0,
    "nvmlDeviceGetVbiosVersion": "96.00.89.00.01",
    "nvmlDeviceGetInforomImageVersion": "G520.0200.00.05",
    "nvmlDeviceGetRemappedRows": (0, 0, False, False),
    "nvmlDeviceGetRetiredPagesPendingStatus": 0,
    "nvmlDeviceGetPciInfo": SimpleNamespace(busId="00000000:01:00.0"),
}
"""How a card is set up, without a fault."""


class Cards:
    """NVML of a machine with cards, which this process and one that is gone compute on.

    Args:
        uuids: of its cards.
        split: indices of those that are split into MIG instances.
        pids: processes that compute on each; ``None``: the card does not say.
        drawing: processes that draw on each.
        utilization: in percent; ``None``: the card does not say.
        throttle_reasons: NVML's bits; ``None``: the card does not say.
        capability: compute capability; ``None``: the card does not say.
        cuda: the newest that the driver is for; ``None``: it does not say.
        lost: errors of cards that do not answer, by index.
        told: other answers, by the name of what is called, or what gives one to its arguments;
            ``None``: the card does not say.
        instances: UUIDs of MIG instances, each with the index of its card.
        nvlinks: state of each NVLink that a card has: 1 if it is up.
        fabric: state in its fabric of NVSwitches, error and health; ``None``: it has none.
    """

    NVMLError, NVMLError_NotSupported = CardError, NotSupportedError
    c_nvmlGpuFabricInfo_v2_t = FabricInfo  # noqa: N815
    NVML_TEMPERATURE_GPU = 0
    GONE = 2**22 + 5

    def __init__(
        self,
        *,
        uuids: tuple[str, ...] = ("GPU-1",),
        split: tuple[int, ...] = (),
        pids: tuple[int, ...] | None = (GONE, os.getpid(), os.getpid()),
        drawing: tuple[int, ...] = (),
        utilization: int | None = 50,
        throttle_reasons: int | None = 0,
        capability: tuple[int, int] | None = (8, 9),
        cuda: int | None = 12080,
        lost: Mapping[int, CardError] | None = None,
        told: Mapping[str, Any] | None = None,
        fabric: tuple[int, int, int] | None = None,
        instances: Mapping[str, int] | None = None,
        nvlinks: tuple[int, ...] = (),
    ) -> None:
        self.nvlinks = nvlinks
        self.uuids = uuids
        self.split = split
        self.trouble: CardError | None = None
        """Why the driver does not answer now."""
        self.pids = pids
        self.drawing = drawing
        self.utilization = utilization
        self.throttle_reasons = throttle_reasons
        self.capability = capability
        self.cuda = cuda
        self.lost = lost
        self.told = told or {}
        self.fabric = fabric
        self.instances = instances or {}

    def nvmlInit(self) -> None:  # noqa: N802
        self.nvmlDeviceGetCount()

    def nvmlShutdown(self) -> None: ...  # noqa: N802

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        if self.trouble is not None:
            raise self.trouble
        return len(self.uuids)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        if self.lost and index in self.lost:
            raise self.lost[index]
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> str:  # noqa: N802
        return self.uuids[handle]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int | str:  # noqa: N802
        if uuid.startswith("MIG-") and uuid not in self.instances:
            raise CardError("Not Found", 6)
        return uuid if uuid in self.instances else 0

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, instance: str) -> int:  # noqa: N802
        return self.instances[instance]

    def nvmlDeviceGetIndex(self, handle: int) -> int:  # noqa: N802
        return handle

    def nvmlDeviceGetMigMode(self, handle: int) -> list[int]:  # noqa: N802
        if not self.split:
            raise NotSupportedError
        return [int(handle in self.split), 0]

    def nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> int:  # noqa: N802
        if link >= len(self.nvlinks):
            raise NotSupportedError
        return self.nvlinks[link]

    def nvmlDeviceGetGpuFabricInfoV(self, handle: int, info: Any) -> None:  # noqa: N802
        if self.fabric is None:
            raise NotSupportedError
        found = info._obj  # of a ctypes.byref
        found.state, found.status, found.healthMask = self.fabric

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            raise AttributeError(name)
        answers: dict[str, Any] = {
            **SETUP,
            "nvmlSystemGetDriverVersion": "570.1",
            "nvmlSystemGetCudaDriverVersion_v2": self.cuda,
            "nvmlDeviceGetName": "RTX",
            "nvmlDeviceGetVirtualizationMode": 0,
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=9, used=4),
            "nvmlDeviceGetUtilizationRates": _told(self.utilization, _rates),
            "nvmlDeviceGetCurrentClocksThrottleReasons": self.throttle_reasons,
            "nvmlDeviceGetCudaComputeCapability": _told(self.capability, list),
            "nvmlDeviceGetPowerUsage": 100_000,
            "nvmlDeviceGetTemperature": 60,
            "nvmlDeviceGetComputeRunningProcesses": _told(self.pids, _processes),
            "nvmlDeviceGetP2PStatus": 0,
            "nvmlDeviceGetGraphicsRunningProcesses": _processes(self.drawing),
            "nvmlDeviceGetMPSComputeRunningProcesses": (),
            **self.told,
        }

        def answer(*arguments: object) -> Any:
            found = answers[name]
            if found is None:
                raise NotSupportedError
            return found(*arguments) if callable(found) else found

        return answer


def _told(value: Any, spell: Callable[[Any], Any]) -> Any:
    return None if value is None else spell(value)


def _rates(percent: int) -> SimpleNamespace:
    return SimpleNamespace(gpu=percent)


def _processes(pids: tuple[int, ...]) -> list[SimpleNamespace]:
    return [SimpleNamespace(pid=pid, usedGpuMemory=3 << 20) for pid in pids]


def install(monkeypatch: pytest.MonkeyPatch, cards: Cards) -> None:
    """Let NVML be this stand-in. It is loaded, so nobody looks for a driver."""
    monkeypatch.setitem(sys.modules, "pynvml", cards)
