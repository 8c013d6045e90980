"""Healthy nodes: no check has anything to say of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from jupyter_mntrain.doctor.check import Case, CheckedNode
from jupyter_mntrain.model.ids import NodeId
from jupyter_mntrain.model.records.doctor.hardware import GpuSetup, Hardware, NetworkCard
from jupyter_mntrain.model.records.doctor.loaded import LoadedSoftware
from jupyter_mntrain.model.records.doctor.machine import (
    FoundPath,
    MachineFacts,
    NameLookup,
    PathUse,
    ProcessLimits,
    Processors,
)
from jupyter_mntrain.model.records.evidence import GpuHealth
from jupyter_mntrain.model.records.node import Gpu, Interface, Inventory, NodeInfo, Versions
from tests.doctor.paths import healthy_paths

GB = 10**9

NAMES = ("wopr", "muthur", "hal")


def healthy() -> Case:
    """Three of them on one network."""
    return Case(nodes=tuple(map(_node, range(1, len(NAMES) + 1))), paths=healthy_paths(NAMES))


def changed(case: Case, at: int = 1, **fields: Any) -> Case:
    """The same, except for these facts of one node."""

    def change(node: CheckedNode) -> CheckedNode:
        assert node.facts is not None
        return msgspec.structs.replace(node, facts=msgspec.structs.replace(node.facts, **fields))

    return with_node(case, change, at)


def with_path(case: Case, use: PathUse, at: int = 1, **fields: Any) -> Case:
    """The same, except for one path of one node."""
    facts = case.nodes[at].facts
    assert facts is not None
    paths = tuple(
        msgspec.structs.replace(path, **fields) if path.use == use else path for path in facts.paths
    )
    return changed(case, at, paths=paths)


def with_inventory(case: Case, at: int = 1, **fields: Any) -> Case:
    """The same, except for what one node is."""

    def change(node: CheckedNode) -> CheckedNode:
        inventory = msgspec.structs.replace(node.info.inventory, **fields)
        info = msgspec.structs.replace(node.info, inventory=inventory)
        return msgspec.structs.replace(node, info=info)

    return with_node(case, change, at)


def with_hardware(case: Case, at: int = 1, **fields: Any) -> Case:
    """The same, except for the hardware of one node."""
    facts = case.nodes[at].facts
    assert facts is not None
    return changed(case, at, hardware=msgspec.structs.replace(facts.hardware, **fields))


def with_gpus(case: Case, at: int = 1, *, count: int = 2, **fields: Any) -> Case:
    """The same, but one node has idle GPUs.

    Args:
        fields: of the setup of each.
    """
    numbers = range(count)
    usual = {
        "name": "NVIDIA H100 80GB HBM3",
        "is_persistent": False,
        "compute_mode": "default",
        "pcie_width": 16,
        "pcie_most": 16,
        "power_limit_w": 350.0,
        "power_default_w": 350.0,
        "numa_node": 0,
    }
    gpus = tuple(
        Gpu(
            index=index,
            uuid=f"GPU-{at}-{index}",
            name=usual["name"],
            memory_total_bytes=80 * GB,
            memory_used_bytes=GB // 2,
            compute_capability=(9, 0),
        )
        for index in numbers
    )
    health = tuple(
        GpuHealth(
            index=index,
            temperature_c=41.0,
            slowed_by=("power limit",),
            uncorrected_errors=0,
            memory_bytes=80 * GB,
        )
        for index in numbers
    )
    setups = tuple(GpuSetup(index=index, **{**usual, **fields}) for index in numbers)
    case = with_inventory(case, at, gpus=gpus)
    return with_hardware(changed(case, at, gpus=health, loaded=loaded_on_gpus()), at, gpus=setups)


def with_node(case: Case, change: Callable[[CheckedNode], CheckedNode], at: int = 1) -> Case:
    nodes = [change(node) if i == at else node for i, node in enumerate(case.nodes)]
    return msgspec.structs.replace(case, nodes=tuple(nodes))


def path(use: PathUse, where: str, *, free: int = 200 * GB, file_system: str = "ext4") -> FoundPath:
    return FoundPath(
        use=use,
        path=where,
        kind="folder",
        real_path=where,
        is_writable=True,
        free_bytes=free,
        total_bytes=500 * GB,
        file_system=file_system,
    )


def _node(number: int) -> CheckedNode:
    return CheckedNode(info=_info(number), facts=healthy_facts(number), clock_error_s=0.01)


def _info(number: int) -> NodeInfo:
    name = NAMES[number - 1]
    return NodeInfo(
        node_id=NodeId(f"{number:032x}"),
        name=name,
        cluster="lab",
        protocol=3,
        addresses=(f"10.0.0.{number}:8765",),
        inventory=Inventory(
            hostname=name,
            cpu_model="Ryzen 9",
            cpu_count=16,
            memory_total_bytes=64 << 30,
            memory_available_bytes=48 << 30,
            interfaces=(
                Interface(name="lo", kind="loopback", is_up=True, addresses=("127.0.0.1/8",)),
                Interface(
                    name="eno1",
                    kind="ethernet",
                    is_up=True,
                    addresses=(f"10.0.0.{number}/24",),
                    mac=f"02:00:00:00:00:0{number}",
                    mtu=1500,
                    speed_mbit_per_s=1000,
                ),
            ),
            gpus=(),
            versions=Versions(
                mntrain="0.1.0", python="3.11.7", platform="x86_64 linux", torch="2.13.0"
            ),
        ),
    )


def healthy_facts(number: int = 1) -> MachineFacts:
    return MachineFacts(
        time_s=1_800_000_000.0,
        user="ann",
        uid=1000,
        gid=1000,
        paths=(
            path("jobs", "/home/ann/.local/state/mntrain/jobs"),
            path("checkpoints", "/home/ann/.local/state/mntrain/runs"),
            path("temporary files", "/tmp"),
            path("shared memory", "/dev/shm", free=32 * GB, file_system="tmpfs"),
        ),
        limits=ProcessLimits(open_files=1 << 20, locked_memory_bytes=8 << 20, core_bytes=0),
        processors=Processors(cores=16.0, governors=("performance",), driver="acpi-cpufreq"),
        own_name=NameLookup(asked=NAMES[number - 1], found=("127.0.1.1",), took_s=0.001),
        peer_names=tuple(
            NameLookup(asked=f"10.0.0.{other}", found=(name,), took_s=0.002)
            for other, name in enumerate(NAMES, start=1)
            if other != number
        ),
        first_process="systemd",
        hardware=Hardware(
            kernel=(),
            cards=(
                NetworkCard(
                    name="eno1",
                    interface="eno1",
                    speed_mbit_per_s=1000,
                    most_mbit_per_s=1000,
                    packets=10_000_000,
                    came_up=1,
                ),
            ),
            up_s=3 * 86400.0,
        ),
        loaded=loaded(),
    )


def loaded_on_gpus() -> LoadedSoftware:
    """What is loaded with the GPUs of :func:`with_gpus`."""
    return msgspec.structs.replace(
        loaded(),
        torch="2.13.0+cu128",
        cuda="12.8",
        nccl="2.27.5",
        devices=2,
        architectures=("sm_80", "sm_90", "compute_90"),
    )


def loaded() -> LoadedSoftware:
    return LoadedSoftware(
        python="/home/ann/env/bin/python",
        torch="2.13.0+cpu",
        torch_file="/home/ann/env/lib/python3.11/site-packages/torch/__init__.py",
        transformers="5.12.1",
    )


def with_disk(facts: MachineFacts | None, free_bytes: int) -> MachineFacts:
    assert facts is not None
    paths = tuple(
        msgspec.structs.replace(one, free_bytes=free_bytes) if one.use == "jobs" else one
        for one in facts.paths
    )
    return msgspec.structs.replace(facts, paths=paths)
