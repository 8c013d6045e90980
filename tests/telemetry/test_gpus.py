"""GPUs: which processes use them. NVML itself needs a machine with GPUs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from jupyter_mntrain.model.records.node import Gpu, GpuProcess
from jupyter_mntrain.telemetry import gpus
from jupyter_mntrain.telemetry.gpus import (
    Driver,
    GpuReader,
    gpus_of,
    has_amd_gpu,
    process_on_gpu,
)
from jupyter_mntrain.telemetry.offered_gpus import visible_gpus
from tests.standin.cards import CardError, Cards, install
from tests.wording import says


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
    assert Gpu(**basis).free_bytes() == 8
    busy = Gpu(**basis, processes=(GpuProcess(pid=7, user="ada"), GpuProcess(pid=8)))
    assert not busy.is_idle
    assert not busy.may_be_used()
    assert busy.may_be_used(shares=True)
    assert busy.free_bytes() == 9, "a job begins once they have ended"
    assert busy.free_bytes(shares=True) == 8, "it begins next to them"
    assert busy.owners == "ada (pid 7) and pid 8"


@pytest.mark.skipif(gpus.has_driver(), reason="a driver is installed here")
def test_without_a_driver_its_python_module_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    assert GpuReader().read() == ()
    assert "pynvml" not in sys.modules


@pytest.mark.skipif(gpus.has_driver(), reason="a driver is installed here")
def test_a_jetson_without_nvml_is_told_what_to_update(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    assert says("JetPack 6", str(GpuReader(kernel="5.10.216-tegra").note))
    assert says("no driver is installed", str(GpuReader(kernel="6.8.0-48-generic").note))


@pytest.mark.parametrize(
    ("held", "draws", "is_idle"),
    [
        (300 << 20, True, True),  # a browser that decodes video
        (None, True, True),
        (300 << 20, False, False),
        (6 << 30, True, False),  # a renderer
    ],
)
def test_a_program_of_the_desktop_is_no_job(
    monkeypatch: pytest.MonkeyPatch, held: int | None, draws: bool, is_idle: bool
) -> None:
    computes = [SimpleNamespace(pid=Cards.GONE, usedGpuMemory=held)]
    told = {"nvmlDeviceGetComputeRunningProcesses": computes}
    install(monkeypatch, Cards(told=told, drawing=(Cards.GONE,) if draws else ()))
    (card,) = GpuReader().read()
    assert card.is_idle is is_idle


@pytest.mark.parametrize(("clients", "is_idle"), [((), True), ((os.getpid(),), False)])
def test_the_server_of_mps_is_no_job_and_its_clients_are(
    monkeypatch: pytest.MonkeyPatch, clients: tuple[int, ...], is_idle: bool
) -> None:
    served = [SimpleNamespace(pid=pid, usedGpuMemory=3 << 20) for pid in clients]
    told = {"nvmlDeviceGetMPSComputeRunningProcesses": served}
    install(monkeypatch, Cards(pids=(os.getppid(),), told=told))
    name = psutil.Process.name
    monkeypatch.setattr(
        psutil.Process,
        "name",
        lambda one: "nvidia-cuda-mps-server" if one.pid == os.getppid() else name(one),
    )
    (card,) = GpuReader().read()
    assert card.is_idle is is_idle
    assert [one.pid for one in card.processes] == list(clients)


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


@pytest.mark.parametrize("capability", [(7, 5), None])
def test_a_card_tells_its_compute_capability_or_it_is_unknown(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int] | None
) -> None:
    install(monkeypatch, Cards(capability=capability))
    (card,) = GpuReader().read()
    assert card.compute_capability == capability


@pytest.mark.parametrize(
    ("name", "mode", "kernel", "maps"),
    [
        ("NVIDIA GeForce RTX 4090", 0, "6.8.0-48-generic", True),
        ("NVIDIA GeForce RTX 4090", None, "6.8.0-48-generic", True),
        ("NVIDIA H100 80GB HBM3", 1, "6.8.0-48-generic", True),  # passed through
        ("NVIDIA H100 NVL", 0, "6.8.0-1018-azure", True),
        ("NVIDIA GB10", 0, "6.11.0-1016-nvidia", False),  # without memory of its own
        ("GRID T4-16Q", None, "6.8.0-48-generic", False),
        ("NVIDIA A100-3-20C", None, "6.8.0-48-generic", False),
        ("NVIDIA L40S", 2, "6.8.0-48-generic", False),
        ("Orin (nvgpu)", None, "5.15.148-tegra", False),
        ("NVIDIA RTX A4000", 0, "6.18.33.2-microsoft-standard-WSL2", False),
    ],
)
def test_where_memory_cannot_be_mapped_is_known(
    monkeypatch: pytest.MonkeyPatch, name: str, mode: int | None, kernel: str, maps: bool
) -> None:
    told = {"nvmlDeviceGetName": name, "nvmlDeviceGetVirtualizationMode": mode}
    if name == "NVIDIA GB10":
        told["nvmlDeviceGetMemoryInfo"] = None
    install(monkeypatch, Cards(told=told))
    (card,) = GpuReader(kernel=kernel).read()
    assert card.maps_memory is maps


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


UUIDS = {0: "GPU-8932f937", 1: "GPU-8932aaaa", 2: "GPU-46b1"}


@pytest.mark.parametrize(
    ("value", "left"),
    [
        (None, {0, 1, 2}),
        ("", set()),
        ("2,0", {0, 2}),
        (" 1 , GPU-46b1", {1, 2}),
        ("GPU-46", {2}),
        ("GPU-8932", set()),
        ("GPU-8932f,GPU-8932a", {0, 1}),
        ("1,-1,2", {1}),
        ("1,7,2", {1}),
        ("MIG-5d3c,1", set()),
        ("NoDevFiles", set()),
    ],
)
def test_what_cuda_leaves_to_a_process_is_read_as_cuda_does(
    value: str | None, left: set[int]
) -> None:
    assert visible_gpus(value, UUIDS) == left


@pytest.mark.parametrize(
    ("value", "left"),
    [
        ("2,0", {0, 2}),
        ("0,1", {0, 1}),
        ("4,6,7", {0, 1, 2}),
        ("1,2,3", {0, 1, 2}),
        ("6,7", set()),
        ("4,6,6", set()),
        ("GPU-8932f,7,8", {0}),
    ],
)
def test_a_scheduler_may_number_the_machines_cards_where_the_driver_shows_only_those_given(
    value: str, left: set[int]
) -> None:
    assert visible_gpus(value, UUIDS, is_scheduled=True) == left


def test_a_mig_instance_that_is_given_stands_in_the_place_of_its_card(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cards = Cards(uuids=("GPU-1", "GPU-2"), split=(1,), instances={"MIG-a": 1, "MIG-b": 1})
    install(monkeypatch, cards)
    reader = gpus_of({"CUDA_VISIBLE_DEVICES": "MIG-b"})
    assert [(gpu.index, gpu.uuid) for gpu in reader.read()] == [(1, "MIG-b")]
    assert (reader.indices, reader.note) == ((1,), None)
    both = gpus_of({"CUDA_VISIBLE_DEVICES": "MIG-b,MIG-a"})
    assert [gpu.uuid for gpu in both.read()] == ["MIG-b"]
    assert "MIG-a" in (both.note or "")
    gone = gpus_of({"CUDA_VISIBLE_DEVICES": "MIG-c"})
    assert gone.read() == ()
    assert "MIG-c" in (gone.note or "")


def test_only_gpus_that_the_agent_may_use_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Cards(uuids=tuple(UUIDS.values())))
    reader = GpuReader("GPU-46b1,0")
    assert [(gpu.index, gpu.uuid) for gpu in reader.read()] == [(0, UUIDS[0]), (2, UUIDS[2])]
    assert reader.note is None
    nothing = GpuReader("")
    assert nothing.read() == ()
    assert "CUDA_VISIBLE_DEVICES" in (nothing.note or "")


def test_a_card_of_mig_instances_is_no_whole_card(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Cards(uuids=tuple(UUIDS.values()), split=(1,)))
    reader = GpuReader()
    assert [gpu.index for gpu in reader.read()] == [0, 2]
    assert "GPU 1" in (reader.note or "")
    assert "nvidia-smi -i 1 -mig 0" in (reader.note or "")


@pytest.mark.parametrize(
    ("error", "words", "kernel"),
    [
        (15, "fell off the bus", "6.8.0-48-generic"),
        (999, "restart this", "6.8.0-48-generic"),
        (999, "WDDM", "6.6.87.2-microsoft-standard-WSL2"),
    ],
)
def test_a_card_that_fell_off_the_bus_is_named_and_the_others_stay(
    monkeypatch: pytest.MonkeyPatch, error: int, words: str, kernel: str
) -> None:
    lost = {1: CardError("GPU is lost", error)}
    install(monkeypatch, Cards(uuids=tuple(UUIDS.values()), lost=lost))
    reader = GpuReader(kernel=kernel)
    assert [gpu.index for gpu in reader.read()] == [0, 2]
    assert "GPU 1" in (reader.note or "")
    assert says(words, reader.note or "")


def test_a_driver_that_does_not_say_its_cuda_is_one_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(monkeypatch, Cards(cuda=None))
    assert GpuReader().driver == Driver("570.1")


@pytest.mark.parametrize(
    ("vendor", "kind", "memory", "is_one"),
    [
        ("0x1002", "0x030000", None, True),
        ("0x1002", "0x038000", 64 << 30, True),
        ("0x1002", "0x120000", None, True),
        ("0x1002", "0x030000", 512 << 20, False),
        ("0x1002", "0x020000", None, False),
        ("0x10de", "0x030000", None, False),
    ],
)
def test_a_card_of_amd_is_found_without_its_driver(
    tmp_path: Path, vendor: str, kind: str, memory: int | None, is_one: bool
) -> None:
    assert not has_amd_gpu(tmp_path)
    device = tmp_path / "bus" / "pci" / "devices" / "0000:03:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text(f"{vendor}\n")
    (device / "class").write_text(f"{kind}\n")
    if memory is not None:
        (device / "mem_info_vram_total").write_text(f"{memory}\n")
    assert has_amd_gpu(tmp_path) == is_one


def test_a_driver_that_answers_later_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    cards = Cards()
    cards.trouble = CardError("Driver Not Loaded")
    install(monkeypatch, cards)
    reader = GpuReader(retry_s=0)
    patient = GpuReader(retry_s=3600)
    assert reader.read() == ()
    assert "Driver Not Loaded" in (reader.note or "")
    cards.trouble = None
    assert len(reader.read()) == 1
    assert (reader.note, reader.driver) == (None, Driver("570.1", "12.8"))
    assert patient.read() == (), "asking takes time, and every heartbeat reads"


def test_a_driver_that_was_updated_is_no_machine_without_a_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cards = Cards()
    install(monkeypatch, cards)
    reader = GpuReader(retry_s=0)
    assert len(reader.read()) == 1
    cards.trouble = CardError("RM has detected an NVML/RM version mismatch.", 18)
    for _ in range(2):
        assert reader.read() == ()
        assert says("driver/library version mismatch", reader.note or "")
        assert reader.held_by([os.getpid()]) == ()
    assert GpuReader().note == reader.note
