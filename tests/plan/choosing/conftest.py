"""Jobs of these tests are small next to a process of Python, which one test alone counts."""

from __future__ import annotations

import pytest

from jupyter_mntrain.plan.choosing import choose, pricing, search
from jupyter_mntrain.recipe.memory import DeviceOverhead


@pytest.fixture(autouse=True)
def _without_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    count(monkeypatch, DeviceOverhead(cuda=0, nccl=0, reserve=0, process=0))


def count(monkeypatch: pytest.MonkeyPatch, overhead: DeviceOverhead) -> None:
    """Plan with this in each rank on a CPU, and with no plan that was made before."""
    monkeypatch.setattr(pricing, "CPU_OVERHEAD", overhead)
    for module in (choose, search):
        monkeypatch.setattr(module, "_newest", search.Newest())
