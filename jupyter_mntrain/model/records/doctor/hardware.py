"""Hardware facts: what the doctor reads from GPUs, network cards and the kernel's log."""

from __future__ import annotations

from typing import Literal

from jupyter_mntrain.model._record import Record

ComputeMode = Literal["default", "exclusive", "prohibited"]
FabricState = Literal["not started", "in progress", "completed"]
KernelFaultKind = Literal["GPU", "disk", "machine check", "out of memory", "connections", "network"]
"""``connections``: the table of those that its firewall follows is full."""
FirmwareKind = Literal["GPU", "network card", "adapter"]
"""``adapter``: for InfiniBand or RoCE."""


class GpuDriver(Record, frozen=True):
    """NVIDIA's driver and its related software.

    Args:
        cards: NVIDIA's GPUs on the PCI bus, with a driver or not.
        error: NVML's number of why the driver does not answer; ``None`` if it does, or if there is
            none.
        has_switches: GPUs are joined by NVSwitches of this machine.
        has_fabric_manager: the service that sets them up is running.
    """

    cards: int = 0
    error: int | None = None
    has_switches: bool = False
    has_fabric_manager: bool = False


class GpuSetup(Record, frozen=True):
    """The configuration of a GPU. ``None`` = not reported.

    Args:
        trouble: why it does not answer, in NVML's words; empty if it does.
        is_split: into MIG instances.
        is_persistent: the driver stays loaded while nobody uses it.
        pcie_width, pcie_most: lanes of its PCIe link, now and at most.
        power_limit_w, power_default_w: what it may draw, and what it would by default.
        fabric: whether it has joined the fabric of NVSwitches, if it is made for one.
        fabric_error: NVML's number of why it could not.
        is_fabric_slow: it says that its bandwidth there is reduced.
        numa_node: that it is attached to.
        nvlinks: links to other GPUs or switches that are up; ``None`` if it is made for none.
        reaches: indices of the others whose memory it may read itself: ``nvidia-smi topo -p2p r``.
        iommu: how the kernel maps what it addresses: ``identity`` passes that through, ``DMA`` and
            its like translate it; empty without an IOMMU, or in a virtual machine that shows none.
        redirected_by: bridges above it whose access control (ACS) sends what it addresses to
            another device up to the processor; ``None`` also where only root may read that.
    """

    index: int
    name: str = ""
    trouble: str = ""
    is_split: bool = False
    is_persistent: bool | None = None
    compute_mode: ComputeMode | None = None
    pcie_width: int | None = None
    pcie_most: int | None = None
    power_limit_w: float | None = None
    power_default_w: float | None = None
    fabric: FabricState | None = None
    fabric_error: int = 0
    is_fabric_slow: bool = False
    numa_node: int | None = None
    nvlinks: int | None = None
    reaches: tuple[int, ...] | None = None
    iommu: str = ""
    redirected_by: tuple[str, ...] | None = None


class NetworkCard(Record, frozen=True):
    """A network card: what it negotiated with the other end, and its errors since boot.

    Args:
        interface: that it carries: itself, or its bridge, bond or VLAN.
        most_mbit_per_s: the fastest that it can.
        offered_mbit_per_s, peer_offered_mbit_per_s: the fastest that it, and the other end, told
            each other to agree to.
        packets: sent and received.
        errors: packets that it sent or received damaged, or had no room for.
        new_errors: of these, while the doctor asked this node.
        came_up: how often its link has come up.
        numa_node: that it is attached to, where there are several.
    """

    name: str
    interface: str
    speed_mbit_per_s: int | None = None
    is_half_duplex: bool = False
    most_mbit_per_s: int | None = None
    offered_mbit_per_s: int | None = None
    peer_offered_mbit_per_s: int | None = None
    packets: int = 0
    errors: int = 0
    new_errors: int = 0
    came_up: int | None = None
    numa_node: int | None = None


class Firmware(Record, frozen=True):
    """The firmware of a device.

    Args:
        device: its name on its node.
        model: what devices that are alike have in common: a name, or numbers of its bus or board.
    """

    kind: FirmwareKind
    device: str
    model: str
    version: str


class KernelFault(Record, frozen=True):
    """A line of the kernel's log that reports a fault.

    Args:
        age_s: seconds since then.
        xid: NVIDIA's number of an error of a GPU.
    """

    kind: KernelFaultKind
    line: str
    age_s: float
    xid: int | None = None


class Hardware(Record, frozen=True):
    """What an agent reports about its machine's hardware.

    Args:
        kernel: faults since boot, the newest last; ``None`` if its log may not be read.
        cards: of the interfaces that are up.
        adapter_numa_nodes: that adapters for InfiniBand or RoCE are attached to, by name.
        firmware: of the GPUs, cards and adapters that tell it.
        up_s: since boot.
    """

    gpu_driver: GpuDriver = GpuDriver()
    gpus: tuple[GpuSetup, ...] = ()
    kernel: tuple[KernelFault, ...] | None = None
    cards: tuple[NetworkCard, ...] = ()
    adapter_numa_nodes: dict[str, int] = {}
    firmware: tuple[Firmware, ...] = ()
    up_s: float = 0.0
