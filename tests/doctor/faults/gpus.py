"""Faults of GPUs and their driver."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from jupyter_mntrain.doctor.check import Case
from jupyter_mntrain.model.records.doctor.hardware import GpuDriver, KernelFault
from jupyter_mntrain.model.records.job import Participant
from jupyter_mntrain.model.records.node import GpuProcess
from tests.doctor.faults.fault import Fault
from tests.doctor.healthy import changed, with_gpus, with_hardware, with_inventory, with_node

GB = 10**9


def setup(**fields: Any) -> Callable[[Case], Case]:
    """One GPU of muthur is set up like this."""

    def make(case: Case) -> Case:
        case = with_gpus(case)
        facts = case.nodes[1].facts
        assert facts is not None
        assert facts.hardware is not None
        first, *others = facts.hardware.gpus
        return with_hardware(case, gpus=(msgspec.structs.replace(first, **fields), *others))

    return make


def peers(**fields: Any) -> Callable[[Case], Case]:
    """Both GPUs of muthur read each other's memory, and are set up like this."""

    def make(case: Case) -> Case:
        case = with_gpus(case)
        facts = case.nodes[1].facts
        assert facts is not None
        assert facts.hardware is not None
        first, second = facts.hardware.gpus
        usual = {"redirected_by": (), **fields}
        return with_hardware(
            case,
            gpus=(
                msgspec.structs.replace(first, **{"reaches": (1,), **usual}),
                msgspec.structs.replace(second, **{"reaches": (0,), **usual}),
            ),
        )

    return make


def state(**fields: Any) -> Callable[[Case], Case]:
    """One GPU of muthur says this of itself."""

    def make(case: Case) -> Case:
        case = with_gpus(case)
        facts = case.nodes[1].facts
        assert facts is not None
        first, *others = facts.gpus
        return changed(case, gpus=(msgspec.structs.replace(first, **fields), *others))

    return make


def wanted(make: Callable[[Case], Case], *gpus: int) -> Callable[[Case], Case]:
    """A job wants these GPUs of muthur."""
    participant = Participant(node="muthur", nproc=len(gpus), gpus=gpus)
    return lambda case: with_node(
        make(case), lambda node: msgspec.structs.replace(node, participant=participant)
    )


def driver(**fields: Any) -> Callable[[Case], Case]:
    return lambda case: with_hardware(case, gpu_driver=GpuDriver(**fields))


def xid(number: int, age_s: float) -> Callable[[Case], Case]:
    line = f"NVRM: Xid (PCI:0000:01:00): {number}, pid=4711, name=python"
    fault = KernelFault(kind="GPU", line=line, age_s=age_s, xid=number)
    return lambda case: with_hardware(with_gpus(case), kernel=(fault,))


def _held(case: Case) -> Case:
    case = with_gpus(case)
    first, *others = case.nodes[1].info.inventory.gpus
    held = msgspec.structs.replace(first, memory_used_bytes=30 * GB)
    return with_inventory(case, gpus=(held, *others))


GPUS = (
    Fault(
        "gpu-driver",
        "NVIDIA's driver was updated, and the machine was not restarted",
        "stops",
        driver(cards=2, error=18),
    ),
    Fault("gpu-driver", "the driver answers with an error", "stops", driver(cards=2, error=999)),
    Fault(
        "gpu-driver",
        "a container that was started without its machine's GPUs",
        "slows",
        driver(cards=2, error=9),
    ),
    Fault("gpu-answers", "a GPU fell off the bus", "slows", setup(trouble="GPU is lost")),
    Fault(
        "gpu-answers",
        "a GPU that a job wants fell off the bus",
        "stops",
        wanted(setup(trouble="GPU is lost"), 0, 1),
    ),
    Fault(
        "gpu-answers",
        "all GPUs are split into MIG instances",
        "slows",
        lambda case: with_gpus(case, count=1, is_split=True),
    ),
    Fault(
        "gpu-fabric",
        "the fabric manager was stopped on a machine with NVSwitches",
        "stops",
        setup(fabric="not started"),
    ),
    Fault(
        "gpu-fabric",
        "the fabric manager was started just now",
        "slows",
        setup(fabric="in progress"),
    ),
    Fault(
        "gpu-fabric",
        "the fabric manager could not set up a GPU",
        "stops",
        setup(fabric="completed", fabric_error=999),
    ),
    Fault(
        "gpu-fabric",
        "A100 GPUs with NVSwitches, and no fabric manager",
        "stops",
        lambda case: with_hardware(with_gpus(case), gpu_driver=GpuDriver(2, has_switches=True)),
    ),
    Fault(
        "gpu-fabric",
        "a GPU whose NVLinks are degraded",
        "slows",
        setup(fabric="completed", is_fabric_slow=True),
    ),
    Fault("gpu-xid", "the kernel logged Xid 79 ten minutes ago", "slows", xid(79, 600.0)),
    Fault(
        "gpu-memory-errors",
        "ECC could not correct two errors",
        "slows",
        state(uncorrected_errors=2),
    ),
    Fault(
        "gpu-memory-errors",
        "a row of memory waits to be replaced",
        "slows",
        state(repairs_pending=True),
    ),
    Fault(
        "gpu-users",
        "another user's program holds half of a GPU's memory",
        "slows",
        state(others=(GpuProcess(pid=99, user="bob", command="vllm", memory_bytes=40 * GB),)),
    ),
    Fault("gpu-users", "memory of a GPU is held by nobody that can be seen", "slows", _held),
    Fault(
        "gpu-compute-mode",
        "a job wants a GPU on which nobody may compute",
        "stops",
        wanted(setup(compute_mode="prohibited"), 0),
    ),
    Fault(
        "gpu-compute-mode",
        "a job wants two ranks on a GPU that takes one process",
        "stops",
        wanted(setup(compute_mode="exclusive"), 0, 0),
    ),
    Fault("gpu-clocks", "a GPU is too hot", "slows", state(slowed_by=("too hot (hardware)",))),
    Fault("gpu-power-limit", "a GPU may draw 100 W of 350 W", "slows", setup(power_limit_w=100.0)),
    Fault("gpu-pcie", "a GPU is on a riser with one lane", "slows", setup(pcie_width=1)),
    Fault(
        "gpu-peers",
        "two consumer cards on a board whose bridges redirect what they send each other (ACS)",
        "slows",
        peers(redirected_by=("0000:00:01.1",)),
    ),
    Fault(
        "gpu-peers",
        "the IOMMU translates what two cards send each other",
        "slows",
        peers(iommu="DMA-FQ", redirected_by=None),
    ),
)
