"""Checks of memory: the machine's, and the shared memory of its processes."""

from __future__ import annotations

from jupyter_mntrain.doctor.check import Examined, NodeCheck
from jupyter_mntrain.doctor.finding import Finding
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.quantities import rough_size
from jupyter_mntrain.model.records.doctor.machine import MachineFacts

LEAST_MEMORY_SHARE = tunables.ratio("doctor.least_memory_share")
LEAST_MEMORY_BYTES = tunables.size("doctor.least_memory_bytes")
SHARED_BYTES = tunables.size("doctor.least_shared_memory_bytes")


class HostMemory(NodeCheck):
    id = "host-memory"
    title = "Memory"
    looks_at = "available memory of the machine"

    def look(self, node: Examined, facts: MachineFacts) -> Finding:  # noqa: ARG002 - inventory's
        inventory = node.info.inventory
        available, total = inventory.memory_available_bytes, inventory.memory_total_bytes
        said = f"{rough_size(available)} of {rough_size(total)}"
        if available >= min(LEAST_MEMORY_BYTES, total * LEAST_MEMORY_SHARE):
            return self.passed(node, said)
        return self.slows(
            node,
            said,
            Kind.OUT_OF_MEMORY,
            cause=f"only {said} of memory are available",
            fix=f"on {node.name}: end what uses it: ps aux --sort=-rss | head",
        )


class SharedMemorySize(NodeCheck):
    id = "shared-memory"
    title = "Shared memory"
    looks_at = "size of /dev/shm, which data loaders and NCCL use"

    def look(self, node: Examined, facts: MachineFacts) -> Finding | None:
        found = next((one for one in facts.paths if one.use == "shared memory"), None)
        if found is None or found.total_bytes is None:
            return None
        free = found.free_bytes or 0
        said = f"{rough_size(free)} of {rough_size(found.total_bytes)}"
        if free >= SHARED_BYTES:
            return self.passed(node, said)
        is_small = found.total_bytes < SHARED_BYTES
        in_container = "start its container with --ipc=host, or with --shm-size=8g"
        on_machine = f"on {node.name}: sudo mount -o remount,size=50% {found.path}"
        fix = in_container if facts.container else on_machine
        return self.slows(
            node,
            said,
            Kind.SHARED_MEMORY,
            cause=f"{found.path} has {rough_size(found.total_bytes)}"
            if is_small
            else f"only {said} of {found.path} are free",
            fix=fix if is_small else f"on {node.name}: delete what lies in {found.path}",
        )
