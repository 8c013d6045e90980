"""GPU health, from answers as NVML's documentation has them; no card was asked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from jupyter_mntrain.agent.machine.hardware import gpu_health
from jupyter_mntrain.model.records.evidence import GpuHealth
from jupyter_mntrain.model.records.node import GpuProcess
from tests.standin.cards import CardError, Cards, NotSupportedError

GONE = Cards.GONE

RECORDED: dict[str, Any] = {
    "nvmlDeviceGetHandleByIndex": "handle",
    "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=24 << 30, used=20 << 30),
    "nvmlDeviceGetTemperature": 92,
    "nvmlDeviceGetCurrentClocksThrottleReasons": 0x20 | 0x4,
    "nvmlDeviceGetTotalEccErrors": 3,
    "nvmlDeviceGetRemappedRows": (1, 2, True, False),
    "nvmlDeviceGetRetiredPagesPendingStatus": 0,
    "nvmlDeviceGetComputeRunningProcesses": [
        SimpleNamespace(pid=GONE, usedGpuMemory=12 << 30),
        SimpleNamespace(pid=GONE + 1, usedGpuMemory=None),
        SimpleNamespace(pid=9, usedGpuMemory=1 << 30),
    ],
}


class Card:
    """NVML with one card.

    Args:
        answers: instead of those recorded; an exception is raised.
    """

    NVMLError, NVMLError_NotSupported = CardError, NotSupportedError
    NVML_TEMPERATURE_GPU = 0

    def __init__(self, **answers: Any) -> None:
        self._answers = {**RECORDED, **answers}

    def __getattr__(self, name: str) -> Any:
        if name not in self._answers:
            raise AttributeError(name)

        def answer(*_: object) -> Any:
            if isinstance(self._answers[name], Exception):
                raise self._answers[name]
            return self._answers[name]

        return answer


def health(**answers: Any) -> GpuHealth:
    (found,) = gpu_health(Card(**answers), [0], {9})
    return found


def test_a_card_tells_its_errors_and_its_other_users() -> None:
    assert health() == GpuHealth(
        index=0,
        temperature_c=92,
        slowed_by=("power limit", "too hot (driver)"),
        uncorrected_errors=3,
        repairs_pending=True,
        memory_bytes=24 << 30,
        others=(
            GpuProcess(pid=GONE, memory_bytes=12 << 30),
            GpuProcess(pid=GONE + 1),
        ),
    )


def test_a_card_that_has_fallen_off_the_bus_says_so() -> None:
    lost = CardError("GPU is lost")
    assert health(nvmlDeviceGetHandleByIndex=lost) == GpuHealth(index=0, trouble="GPU is lost")
    assert health(nvmlDeviceGetMemoryInfo=lost) == GpuHealth(index=0, trouble="GPU is lost")


def test_what_a_card_does_not_tell_is_unknown_and_not_zero() -> None:
    nothing = dict.fromkeys(RECORDED, NotSupportedError())
    found = health(**{**nothing, "nvmlDeviceGetHandleByIndex": "handle"})
    assert found == GpuHealth(index=0)
    assert found.uncorrected_errors is None


def test_a_machine_without_cards_has_nothing_to_say() -> None:
    assert gpu_health(None, [0]) == ()
