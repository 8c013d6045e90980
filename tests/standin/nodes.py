"""Nodes for tests of planning, in one line each."""

from __future__ import annotations

from typing import Any

from jupyter_mntrain.model.ids import JobId, NodeId
from jupyter_mntrain.model.records.node import (
    Capacity,
    Gpu,
    Interface,
    Inventory,
    LeaseInfo,
    LinkMeasurement,
    NodeInfo,
    Versions,
)
from tests.standin.jobs import measured_links

LO = Interface(name="lo", kind="loopback", is_up=True, addresses=("127.0.0.1/8",))


def gpu(index: int, **fields: Any) -> Gpu:
    basis: dict[str, Any] = {
        "index": index,
        "uuid": f"GPU-{index}",
        "name": "RTX",
        "memory_total_bytes": 24 << 30,
        "memory_used_bytes": 0,
    }
    return Gpu(**(basis | fields))


def nic(name: str, *addresses: str, **fields: Any) -> Interface:
    basis: dict[str, Any] = {"kind": "ethernet", "is_up": True, "mac": f"{name}-{addresses}"}
    return Interface(name=name, addresses=addresses, **(basis | fields))


def measured(mbit_per_s: float, *receivers: str) -> tuple[LinkMeasurement, ...]:
    """Sent by an interface to some nodes, or to all that tests plan with."""
    capacity = Capacity(bytes_per_s=mbit_per_s * 1e6 / 8, source="measured", condition="alone")
    return measured_links("?", receivers or ("a", "b", "c"), capacity)


def docker0() -> Interface:
    """The decoy: every machine has it, and every machine calls itself 172.17.0.1."""
    return nic("docker0", "172.17.0.1/16", kind="virtual", mac="02:42")


def node(
    name: str,
    *interfaces: Interface,
    agent: str | None = None,
    gpus: tuple[Gpu, ...] = (),
    gpu_prefix: str | None = None,
    leased: dict[str, tuple[int, ...]] | None = None,
    boot_id: str | None = None,
    node_id: str | None = None,
    hostname: str | None = None,
    versions: dict[str, Any] | None = None,
) -> NodeInfo:
    """A node; GPUs get UUIDs of their own machine unless ``gpu_prefix`` says they share one."""
    prefix = gpu_prefix or name
    basis: dict[str, Any] = {"mntrain": "0.1", "python": "3.11.7", "platform": "x86_64 linux"}
    basis["compresses"] = True
    host = interfaces[0].addresses[0].partition("/")[0] if interfaces else "127.0.0.1"
    return NodeInfo(
        node_id=NodeId(node_id or f"id-of-{name}"),
        name=name,
        cluster="default",
        protocol=1,
        addresses=(agent or f"{host}:8765",),
        inventory=Inventory(
            hostname=hostname or name,
            cpu_model="CPU",
            cpu_count=8,
            memory_total_bytes=1 << 34,
            memory_available_bytes=1 << 33,
            interfaces=(*interfaces, LO),
            gpus=tuple(
                Gpu(
                    **{f: getattr(g, f) for f in g.__struct_fields__}
                    | {"uuid": f"{prefix}-{g.uuid}"}
                )
                for g in gpus
            ),
            versions=Versions(**(basis | (versions or {}))),
        ),
        leases=tuple(
            LeaseInfo(job_id=JobId(job), attempt=1, gpus=indices, port=None, expires_s=None)
            for job, indices in (leased or {}).items()
        ),
        boot_id=f"boot-{name}" if boot_id is None else boot_id,
    )
