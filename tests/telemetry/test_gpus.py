"""GPUs: which processes use them. NVML itself needs a machine with GPUs."""

from __future__ import annotations

import os
import sys

import psutil
import pytest

from jupyter_mntrain.model.records.node import Gpu, GpuProcess
from jupyter_mntrain.telemetry import gpus
from jupyter_mntrain.telemetry.gpus import GpuReader, process_on_gpu
from tests.standin.cards import Cards, install


def test_a_process_is_named_by_user_program_and_pid() -> None:
    me = psutil.Process()
    told = process_on_gpu(os.getpid())
    assert (told.user, told.command) == (me.username(), me.name())
    assert str(told) == f"{me.username()}, {me.name()} (pid {os.getpid()})"


def test_a_process_that_is_gone_or_of_another_namespace_keeps_its_pid() -> None:
    assert str(process_on_gpu(2**22 + 5)) == f"pid {2**22 + 5}"


def test_a_gpu_somebody_computes_on_is_not_idle() -> None:
    basis = {
        "index": 0,
        "uuid": "u",
        "name": "RTX",
        "memory_total_bytes": 9,
        "memory_used_bytes": 1,
    }
    assert Gpu(**basis).is_idle
    busy = Gpu(**basis, processes=(GpuProcess(pid=7, user="ada"), GpuProcess(pid=8)))
    assert not busy.is_idle
    assert busy.owners == "ada (pid 7) and pid 8"


@pytest.mark.skipif(gpus.has_driver(), reason="a driver is installed here")
def test_without_a_driver_its_python_module_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    assert GpuReader().read() == ()
    assert "pynvml" not in sys.modules


def test_a_card_tells_who_computes_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Cards())
    (card,) = GpuReader().read()
    me = psutil.Process()
    mine = GpuProcess(pid=os.getpid(), user=me.username(), command=me.name())
    assert card.processes == (mine, GpuProcess(pid=Cards.GONE))
    assert [process.pid for process in card.processes] == [os.getpid(), Cards.GONE]
    assert (card.name, card.utilization, card.power_w) == ("RTX", 0.5, 100.0)


def test_a_card_that_keeps_its_processes_to_itself_is_still_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(monkeypatch, Cards(pids=None))
    (card,) = GpuReader().read()
    assert card.processes == ()


def test_a_process_of_somebody_else_keeps_its_pid(monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(pid: int) -> psutil.Process:
        raise psutil.AccessDenied(pid)

    monkeypatch.setattr(psutil, "Process", denied)
    assert process_on_gpu(7) == GpuProcess(pid=7)


def test_what_a_process_holds_after_its_end_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Cards())
    (left,) = GpuReader().held_by([Cards.GONE])
    assert (left.pid, left.status) == (Cards.GONE, "gone")
    assert left.command == "still holds 3 MiB of GPU 0"
    assert GpuReader().held_by([1]) == ()
    install(monkeypatch, Cards(pids=None))
    assert GpuReader().held_by([Cards.GONE]) == ()


@pytest.mark.parametrize(
    ("reasons", "words"),
    [(0, ""), (0x4, ""), (0x40, "clocks lowered by the hardware"), (None, "clocks unknown")],
)
def test_lowered_clocks_are_told_and_a_power_limit_is_none(
    monkeypatch: pytest.MonkeyPatch, reasons: int | None, words: str
) -> None:
    install(monkeypatch, Cards(throttle_reasons=reasons))
    assert GpuReader().slowed_by("GPU-1") == words
