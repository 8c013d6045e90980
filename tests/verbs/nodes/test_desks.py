"""GPUs as people have them: what ``nodes``, ``dry-run`` and ``launch`` say of each.

NVML is a stand-in that answers as these cards and drivers were reported to; none of them is here.
"""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import msgspec
import psutil
import pytest

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.show.formats import SPACE
from jupyter_mntrain.telemetry.gpus import GpuReader
from tests.standin.cards import Cards, install
from tests.standin.cluster import StandInCluster, node
from tests.wording import says

LINUX, WSL2 = "6.8.0-48-generic", "6.18.33.2-microsoft-standard-WSL2"
GIB = 1 << 30
MACHINE, AVAILABLE = 120 * GIB, 112 * GIB


class Desk(Record, frozen=True):
    """A machine, and what is said of it.

    Args:
        cards: arguments of the stand-in.
        visible: ``CUDA_VISIBLE_DEVICES`` of the agent.
        note: in what ``nodes`` says of its GPUs.
        listed: further words that ``nodes`` shows.
        free: GiB that ``dry-run`` plans with, of each GPU that a job gets by default; none: the job
            runs on the CPU.
        grows: whether torch's segments can.
    """

    cards: dict[str, Any]
    kernel: str = LINUX
    visible: str | None = None
    note: str = ""
    listed: tuple[str, ...] = ()
    free: tuple[float, ...] = ()
    grows: bool = True


def memory(total: float, used: float) -> SimpleNamespace:
    return SimpleNamespace(total=int(total * GIB), used=int(used * GIB))


def card(name: str, total: float, used: float = 0, **told: Any) -> dict[str, Any]:
    known = {"nvmlDeviceGetName": name, "nvmlDeviceGetMemoryInfo": memory(total, used)}
    return {"pids": (), "told": known | told}


def unified(name: str, **told: Any) -> dict[str, Any]:
    known = {"nvmlDeviceGetName": name, "nvmlDeviceGetMemoryInfo": None}
    return {"pids": (), "told": known | told}


UNLIKE = {
    "nvmlDeviceGetName": lambda at: ("NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 4090")[at],
    "nvmlDeviceGetMemoryInfo": lambda at: (memory(24, 0.0), memory(24, 1.5))[at],
}
BROWSER = os.getpid()

DESKS = {
    "a 4090 with a desktop": Desk(
        card("NVIDIA GeForce RTX 4090", 24, 1.9), free=(22.1,), listed=("idle; 0: 22.1 GiB free",)
    ),
    "a 4090 whose browser decodes video": Desk(
        card("NVIDIA GeForce RTX 4090", 24, 2.5) | {"pids": (BROWSER,), "drawing": (BROWSER,)},
        free=(21.5,),
        listed=("idle; 0: 21.5 GiB free",),
    ),
    "GB10": Desk(
        unified("NVIDIA GB10"),
        free=(112,),
        listed=("shares its memory with the CPU",),
        kernel="6.11.0-1016-nvidia",
        grows=False,
    ),
    "Jetson": Desk(
        unified("Orin (nvgpu)", nvmlDeviceGetTemperature=None, nvmlDeviceGetPowerUsage=None)
        | {"utilization": None, "pids": None},
        free=(112,),
        kernel="5.15.148-tegra",
        grows=False,
        listed=("shares its memory with the CPU",),
    ),
    "WSL2": Desk(
        card("NVIDIA RTX A4000", 16, 1.2) | {"pids": None}, kernel=WSL2, free=(14.8,), grows=False
    ),
    "vGPU": Desk(
        card("NVIDIA L40S-24Q", 24, nvmlDeviceGetVirtualizationMode=2, nvmlDeviceGetPowerUsage=None)
        | {"pids": None},
        free=(24,),
        grows=False,
    ),
    "MIG": Desk(
        {"split": (0,)} | card("NVIDIA H100 80GB HBM3", 80), note="split into MIG instances"
    ),
    "a MIG instance": Desk(
        card("NVIDIA H100 80GB HBM3 MIG 3g.40gb", 40) | {"instances": {"MIG-1": 0}},
        visible="MIG-1",
        free=(40,),
    ),
    "a laptop": Desk(
        card("NVIDIA GeForce RTX 4090 Laptop GPU", 16, 0.01), free=(16.0,), listed=("idle",)
    ),
    "two unlike cards": Desk(
        {"uuids": ("GPU-1", "GPU-2"), "pids": (), "told": UNLIKE},
        free=(24, 22.5),
        listed=("RTX 3090", "RTX 4090", "all idle; 1: 22.5 GiB free"),
    ),
}


@pytest.fixture(params=DESKS, ids=list(DESKS))
def desk(request: pytest.FixtureRequest) -> Desk:
    return DESKS[request.param]


@pytest.fixture
def there(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> StandInCluster:
    return cluster_of(desk, monkeypatch)


def cluster_of(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> StandInCluster:
    """A cluster of this machine, as its agent reads it."""
    install(monkeypatch, Cards(**desk.cards))
    shared = SimpleNamespace(total=MACHINE, available=AVAILABLE)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: shared)
    reader = GpuReader(desk.visible, kernel=desk.kernel)
    view = node("desk", 1)
    inventory = msgspec.structs.replace(
        view.info.inventory,
        gpus=reader.read(),
        gpu_note=reader.note,
        memory_total_bytes=MACHINE,
        memory_available_bytes=AVAILABLE,
    )
    info = msgspec.structs.replace(view.info, inventory=inventory)
    return StandInCluster(nodes=[msgspec.structs.replace(view, info=info)], jobs=[])


@pytest.mark.parametrize("asked", [(), ("--member", "desk"), ("--member", "desk:gpu0")], ids=str)
def test_what_is_said_of_a_desk(desk, there, do, text, as_json, recipe, asked) -> None:
    (listed,) = as_json(do("nodes", on=there))
    assert says(desk.note, listed["info"]["inventory"].get("gpu_note") or "")
    for gpu in listed["info"]["inventory"].get("gpus", ()):
        assert gpu.get("maps_memory", True) == desk.grows
    shown = text(do("nodes", on=there).renderable, 400).replace(SPACE, " ")
    for words in desk.listed:
        assert says(words, shown)
    if asked[-1:] == ("desk:gpu0",) and not desk.free:
        return  # there is none, which is another test's
    planned = as_json(do("launch", "--dry-run", "r.toml", *asked, directory=recipe, on=there))
    free = [one["gpu_bytes"] / GIB for one in planned["memory"] if "gpu_bytes" in one]
    expected = desk.free[:1] if "desk:gpu0" in asked else desk.free
    assert free == pytest.approx(expected, abs=0.05)
    started = as_json(do("launch", "r.toml", *asked, directory=recipe, on=there))
    for told in (planned, started):
        assert not [one for one in told.get("warnings", ()) if one["kind"] == "gpu-taken"]


@pytest.mark.parametrize(
    ("asked", "shares"),
    [((), None), (("desk",), None), (("desk:gpu0",), True), (("desk:1",), True)],
)
def test_a_gpu_that_computes_for_others_is_shared_by_who_names_it(
    monkeypatch: pytest.MonkeyPatch, do, as_json, recipe, asked, shares
) -> None:
    busy = card("NVIDIA GeForce RTX 4090", 24, 10) | {"pids": (Cards.GONE,)}
    there = cluster_of(Desk(busy), monkeypatch)
    words = ("r.toml", *(word for one in asked for word in ("--member", one)))
    if not shares:
        with pytest.raises(SpecError) as caught:
            do("launch", *words, directory=recipe, on=there)
        assert says(f"pid {Cards.GONE}", str(caught.value))
        assert says("--member desk:gpu0", str(caught.value.fix))
        return
    planned = as_json(do("launch", "--dry-run", *words, directory=recipe, on=there))
    started = as_json(do("launch", *words, directory=recipe, on=there))
    for told in (planned, started):
        (warning,) = (one for one in told["warnings"] if one["kind"] == "gpu-taken")
        assert (warning["node"], says(f"pid {Cards.GONE}", warning["cause"])) == ("desk", True)
    assert [one["gpu_bytes"] for one in planned["memory"]] == [14 * GIB], "what nobody uses now"
    (spec,) = there.launches
    assert [one.shares_gpus for one in spec.participants] == [True]
