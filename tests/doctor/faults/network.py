"""Faults of network cards, of adapters for RDMA, and what the kernel has logged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from jupyter_mntrain.doctor.check import Case
from jupyter_mntrain.model.records.doctor.hardware import (
    KernelFault,
    KernelFaultKind,
    NetworkCard,
)
from jupyter_mntrain.model.records.doctor.machine import ProcessLimits, Processors
from jupyter_mntrain.model.records.job import Participant
from jupyter_mntrain.model.records.node import RdmaLink, RdmaPort, RoceGid
from tests.doctor.faults.fault import Fault
from tests.doctor.healthy import changed, with_gpus, with_hardware, with_inventory, with_node

CARD = NetworkCard(
    name="eno1",
    interface="eno1",
    speed_mbit_per_s=1000,
    most_mbit_per_s=1000,
    offered_mbit_per_s=1000,
    peer_offered_mbit_per_s=1000,
    packets=10_000_000,
    errors=3,
    came_up=2,
)


def card(**fields: Any) -> Callable[[Case], Case]:
    """The network card of muthur is like this."""
    return lambda case: with_hardware(case, cards=(msgspec.structs.replace(CARD, **fields),))


def adapters(link: RdmaLink = "InfiniBand", **fields: Any) -> Callable[[Case], Case]:
    """All nodes have a GPU and an adapter, and muthur's is like this."""

    def make(case: Case) -> Case:
        for at in range(len(case.nodes)):
            gids = (RoceGid(index=3, address=f"10.0.0.{at + 1}"),) if link == "RoCE" else ()
            port = RdmaPort(device="mlx5_0", number=1, link=link, state="ACTIVE", gids=gids)
            own = msgspec.structs.replace(port, **(fields if at == 1 else {}))
            case = with_inventory(
                with_gpus(case, at), at, rdma_ports=(own,), gpu_direct="nvidia-peermem"
            )
            limits = ProcessLimits(open_files=1 << 20, core_bytes=0)
            case = changed(case, at, limits=limits)
            case = with_hardware(case, at, adapter_numa_nodes={"mlx5_0": 0})
        return case

    return make


def logged(kind: KernelFaultKind, line: str, age_s: float = 600.0) -> Callable[[Case], Case]:
    fault = KernelFault(kind=kind, line=line, age_s=age_s)
    return lambda case: with_hardware(case, kernel=(fault,))


def _ten_gigabit(case: Case) -> Case:
    fast = msgspec.structs.replace(CARD, speed_mbit_per_s=10_000, most_mbit_per_s=10_000)
    for at in (0, 2):
        case = with_hardware(case, at, cards=(fast,))
    slow = msgspec.structs.replace(CARD, most_mbit_per_s=10_000)
    return with_hardware(case, cards=(slow,))


def _without_address(case: Case) -> Case:
    interfaces = tuple(
        msgspec.structs.replace(one, addresses=()) if one.name == "eno1" else one
        for one in case.nodes[1].info.inventory.interfaces
    )
    return with_inventory(case, interfaces=interfaces)


def _wants(case: Case, **fields: Any) -> Case:
    participant = Participant(node="muthur", **fields)
    return with_node(case, lambda node: msgspec.structs.replace(node, participant=participant))


NETWORK = (
    Fault(
        "network-address",
        "its network card is up, but has no IPv4 address",
        "slows",
        _without_address,
    ),
    Fault(
        "network-address",
        "the interface that a job wants has no IPv4 address",
        "stops",
        lambda case: _wants(_without_address(case), interface="eno1"),
    ),
    Fault("network-duplex", "half duplex", "slows", card(is_half_duplex=True)),
    Fault(
        "network-speed",
        "100 Mbit/s, by a cable with a broken pair",
        "slows",
        card(speed_mbit_per_s=100),
    ),
    Fault(
        "network-speed",
        "100 Mbit/s, by an old switch",
        "slows",
        card(speed_mbit_per_s=100, peer_offered_mbit_per_s=100),
    ),
    Fault("network-speed", "1 Gbit/s, the others of its subnet 10 Gbit/s", "slows", _ten_gigabit),
    Fault("network-errors", "one packet in 1,000 arrives damaged", "slows", card(errors=10_000)),
    Fault("network-errors", "packets arrive damaged just now", "slows", card(new_errors=40)),
    Fault("network-carrier", "its link broke 60 times in 3 days", "slows", card(came_up=61)),
    Fault(
        "rdma-ports",
        "an InfiniBand port waits for a subnet manager",
        "slows",
        adapters(state="INIT"),
    ),
    Fault("rdma-ports", "the cable of an InfiniBand port is out", "slows", adapters(state="DOWN")),
    Fault(
        "rdma-ports",
        "a container without the adapter's device node",
        "slows",
        adapters(obstacle="has no /dev/infiniband/uverbs0 here"),
    ),
    Fault("rdma-ports", "a RoCE port without an address", "slows", adapters("RoCE", gids=())),
    Fault(
        "gpu-direct",
        "neither nvidia-peermem nor dma-buf",
        "slows",
        lambda case: with_inventory(adapters()(case), gpu_direct=None),
    ),
    Fault(
        "gpu-direct",
        "the GPU and the adapter are attached to different processors",
        "slows",
        lambda case: with_hardware(
            with_gpus(adapters()(case), count=1), adapter_numa_nodes={"mlx5_0": 1}
        ),
    ),
    Fault(
        "cores",
        "a job wants 4 ranks in a container with 2 cores",
        "slows",
        lambda case: _wants(changed(case, processors=Processors(cores=2.0)), nproc=4),
    ),
    Fault(
        "kernel-log",
        "a disk failed",
        "slows",
        logged("disk", "blk_update_request: I/O error, dev sda, sector 2048"),
    ),
    Fault(
        "kernel-log",
        "a machine check",
        "slows",
        logged("machine check", "mce: [Hardware Error]: Machine check events logged"),
    ),
    Fault(
        "kernel-log",
        "the OOM killer ended a process",
        "slows",
        logged("out of memory", "Out of memory: Killed process 4711 (python)"),
    ),
    Fault(
        "kernel-log",
        "the firewall's table of connections is full",
        "slows",
        logged("connections", "nf_conntrack: nf_conntrack: table full, dropping packet"),
    ),
    Fault(
        "kernel-log",
        "a network card hangs",
        "slows",
        logged("network", "NETDEV WATCHDOG: eno1 (igc): transmit queue 0 timed out"),
    ),
)
