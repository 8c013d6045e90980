"""Checks of hardware say nothing of what is usual, or made on purpose, or of a job of ours."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from jupyter_mntrain.agent.machine.facts import MachineReader
from jupyter_mntrain.doctor.check import Case
from jupyter_mntrain.doctor.every import examine
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.doctor.hardware import GpuDriver
from jupyter_mntrain.model.records.doctor.machine import MachineQuestion
from jupyter_mntrain.model.records.node import GpuProcess, LeaseInfo
from jupyter_mntrain.telemetry.gpus import GpuReader
from tests.doctor.faults.gpus import GB, driver, peers, setup, state, wanted, xid
from tests.doctor.faults.network import adapters, card, logged
from tests.doctor.faults.unlike import with_firmware, with_places, with_versions
from tests.doctor.healthy import (
    changed,
    healthy,
    with_gpus,
    with_hardware,
    with_inventory,
    with_node,
)
from tests.standin.cards import SETUP, CardError, Cards, install


def levels(case: Case) -> set[str]:
    return {one.level for one in examine(case)}


USUAL: dict[str, Callable[[Case], Case]] = {
    "idle GPUs": with_gpus,
    "a job on both GPUs": wanted(with_gpus, 0, 1),
    "a library without a card": driver(error=9),
    "an error of a program": xid(31, 60.0),
    "an error of last week": xid(79, 7 * 86400.0),
    "one of two GPUs split": setup(is_split=True),
    "half of the lanes": setup(pcie_width=8),
    "a little less power": setup(power_limit_w=280.0),
    "one process at a time": setup(compute_mode="exclusive"),
    "GPUs that read each other's memory": peers(iommu="identity"),
    "GPUs of GeForce, which do not": peers(
        reaches=(), iommu="DMA-FQ", redirected_by=("0000:00:01.1",)
    ),
    "GPUs with NVLink behind an IOMMU": peers(nvlinks=4, iommu="DMA"),
    "one GPU of a job behind an IOMMU": wanted(peers(iommu="DMA"), 0),
    "GPUs of which only root is told": peers(redirected_by=None),
    "NCCL keeps from what hangs": lambda case: changed(
        peers(iommu="DMA")(case), environment={"NCCL_P2P_DISABLE": "1"}
    ),
    "NCCL keeps from what may hang": lambda case: changed(
        peers(redirected_by=None)(case), environment={"NCCL_P2P_DISABLE": "1"}
    ),
    "NCCL keeps from what there is not": lambda case: changed(
        peers(reaches=())(case), environment={"NCCL_P2P_DISABLE": "1"}
    ),
    "a fabric that is set up": setup(fabric="completed"),
    "a desktop on a GPU": state(others=(GpuProcess(pid=9, memory_bytes=GB // 3),)),
    "no ECC": state(uncorrected_errors=None),
    "a GPU on a riser that no job wants": wanted(setup(pcie_width=1), 1),
    "InfiniBand": adapters(),
    "RoCE": adapters("RoCE"),
    "RoCE on one node": lambda case: with_inventory(
        adapters("RoCE", gids=())(case), 0, rdma_ports=()
    ),
    "InfiniBand, switched off": lambda case: changed(
        adapters(obstacle="is off")(case), environment={"NCCL_IB_DISABLE": "1"}
    ),
    "no processor is told of": lambda case: with_hardware(adapters()(case), adapter_numa_nodes={}),
    "GPUs on two processors": lambda case: with_places(adapters()(case), (0, 1), (0, 1)),
    "GPUs of one node on two processors": setup(numa_node=1),
    "other GPUs on other processors": lambda case: with_gpus(
        with_places(case, (0, 1), (0, 1)), name="NVIDIA L40S", numa_node=1
    ),
    "a graphics card of another maker": lambda case: with_firmware(
        case, "GPU", "GPU 0", "NVIDIA GeForce RTX 4090", "95.02.3C.40.0B", "95.02.3C.C0.8E"
    ),
    "network cards of a gigabit of two mainboards": lambda case: with_firmware(
        case, "network card", "eno1", "8086:1533", "3.25, 0x800005d0", "3.16, 0x800004d6"
    ),
    "the same firmware": lambda case: with_firmware(
        case, "adapter", "mlx5_0", "MT_0000000838", "28.39.1002", "28.39.1002"
    ),
    "another patch of Python": lambda case: with_versions(case, python="3.11.9"),
    "a virtual card": card(
        speed_mbit_per_s=None,
        most_mbit_per_s=None,
        offered_mbit_per_s=None,
        peer_offered_mbit_per_s=None,
        came_up=None,
    ),
    "a card for 10 Gbit/s at a switch for 1": card(
        most_mbit_per_s=10_000, offered_mbit_per_s=10_000
    ),
    "a few bad packets": card(errors=99, packets=1000),
    "a cable was pulled": card(came_up=5, new_errors=2),
    "memory ran out yesterday": logged("out of memory", "Out of memory", 86400.0),
    "no kernel log": lambda case: with_hardware(case, kernel=None),
    "NVSwitches in a container": lambda case: changed(
        with_hardware(with_gpus(case), gpu_driver=GpuDriver(2, has_switches=True)),
        container="docker",
        first_process="tini",
    ),
}


@pytest.mark.parametrize("name", USUAL)
def test_nothing_is_said_of_what_is_usual(name):
    assert levels(USUAL[name](healthy())) == {"passed"}


def test_nothing_is_said_of_a_job_of_this_cluster():
    case = state(others=(GpuProcess(pid=9, memory_bytes=70 * GB),))(healthy())
    assert levels(case) == {"passed", "slows"}
    lease = LeaseInfo(job_id=JobId("1"), attempt=1, gpus=(0,), port=None, expires_s=None)

    def offered(node):
        return msgspec.structs.replace(
            node, info=msgspec.structs.replace(node.info, leases=(lease,))
        )

    assert levels(with_node(case, offered)) == {"passed"}


def test_a_job_that_wants_no_gpu_is_not_stopped_by_their_driver():
    mismatch = driver(cards=2, error=18)
    assert "stops" in levels(mismatch(healthy()))
    assert "stops" not in levels(wanted(mismatch)(healthy()))


@pytest.mark.parametrize("cards", [{}, {"nvlinks": 4, "iommu": "DMA", "redirected_by": None}])
def test_what_keeps_nccl_from_what_works_was_left(cards):
    case = changed(peers(**cards)(healthy()), environment={"NCCL_P2P_DISABLE": "1"})
    assert [one.check for one in examine(case) if one.level != "passed"] == ["debug-variables"]


def test_of_an_older_agent_hardware_is_unknown():
    found = examine(changed(healthy(), hardware=None))
    assert {one.level for one in found if one.node == "muthur"} == {"passed", "unknown"}


@pytest.mark.parametrize(
    ("cards", "found"),
    [
        (Cards(pids=()), []),
        (
            Cards(pids=(), uuids=("GPU-1", "GPU-2"), lost={1: CardError("lost", 15)}),
            ["gpu-answers"],
        ),
        (Cards(pids=(), throttle_reasons=0x40), ["gpu-clocks"]),
        (Cards(pids=(), fabric=(1, 0, 0)), ["gpu-fabric"]),
        (Cards(pids=(), fabric=(2, 0, 0)), ["gpu-fabric"]),
        (Cards(pids=(), fabric=(3, 0, 0)), []),
        (Cards(pids=(), fabric=(1, 0, 0), split=(0,), uuids=("GPU-1", "GPU-2")), ["gpu-fabric"]),
        (Cards(pids=(), told={"nvmlDeviceGetTotalEccErrors": 2}), ["gpu-memory-errors"]),
        (Cards(pids=(), told={"nvmlDeviceGetCurrPcieLinkWidth": 1}), ["gpu-pcie"]),
        (Cards(pids=(), told=dict.fromkeys(SETUP)), []),
    ],
)
def test_what_nvml_tells_an_agent_reaches_its_check(monkeypatch, tmp_path, cards, found):
    install(monkeypatch, cards)
    none = tmp_path / "none"
    gpus = GpuReader()
    reader = MachineReader(tmp_path, gpus, proc=none, sysfs=none, kmsg=none, root=none)
    facts = reader.read(MachineQuestion(looks_up_names=False))
    case = changed(healthy(), gpus=facts.gpus, hardware=facts.hardware)
    assert [one.check for one in examine(case) if one.level != "passed"] == found


def test_a_driver_of_another_version_reaches_its_check(monkeypatch, tmp_path):
    cards = Cards()
    cards.trouble = CardError("Driver/library version mismatch", 18)
    install(monkeypatch, cards)
    none = tmp_path / "none"
    reader = MachineReader(tmp_path, GpuReader(), proc=none, sysfs=none, kmsg=none, root=none)
    facts = reader.read(MachineQuestion(looks_up_names=False))
    found = examine(changed(healthy(), gpus=facts.gpus, hardware=facts.hardware))
    assert (found[0].check, found[0].level) == ("gpu-driver", "stops")


def test_a_gpu_that_is_split_needs_no_fabric():
    split = setup(is_split=True, fabric="not started")
    assert levels(split(healthy())) == {"passed"}
