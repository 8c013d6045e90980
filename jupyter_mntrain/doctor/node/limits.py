"""Checks of the limits that ranks inherit from their agent."""

from __future__ import annotations

from jupyter_mntrain.doctor.check import Examined, NodeCheck
from jupyter_mntrain.doctor.finding import Finding
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.quantities import rough_size
from jupyter_mntrain.model.records.doctor.machine import MachineFacts

OPEN_FILES = tunables.count("doctor.least_open_files")
LEAST_AT_START = tunables.count("doctor.least_open_files_at_start")
LEAST_FILE = tunables.size("doctor.least_file_bytes")


class OpenFileLimit(NodeCheck):
    id = "open-files"
    title = "Open files"
    looks_at = (
        "the limits of open files of a process: the hard one, and the one that it begins with"
    )

    def look(self, node: Examined, facts: MachineFacts) -> Finding:
        limit, begins = facts.limits.open_files, facts.limits.open_files_at_start
        if begins is not None and begins < LEAST_AT_START:
            return self.slows(
                node,
                f"{begins:,}",
                Kind.TOO_MANY_FILES,
                cause=f"a process may open {begins:,} files unless it raises its own limit; torch "
                "alone takes dozens, and ranks with data loaders need more",
                fix=f"on {node.name}: set LimitNOFILE=65536 for the agent's service, or ulimit -Sn "
                "65536 in the shell that starts it",
            )
        if limit is None or limit >= OPEN_FILES:
            return self.passed(node, "unlimited" if limit is None else f"{limit:,}")
        return self.slows(
            node,
            f"{limit:,}",
            Kind.TOO_MANY_FILES,
            cause=f"a process may open {limit:,} files; ranks with data loaders need more",
            fix=f"on {node.name}: set LimitNOFILE=65536 for the agent's service, or ulimit -Hn "
            "65536 in the shell that starts it",
        )


class FileSize(NodeCheck):
    id = "file-size"
    title = "Size of files"
    looks_at = "the limit of the size of a file"

    def look(self, node: Examined, facts: MachineFacts) -> Finding:
        limit = facts.limits.file_bytes
        if limit is None or limit >= LEAST_FILE:
            return self.passed(node, "unlimited" if limit is None else rough_size(limit))
        return self.slows(
            node,
            rough_size(limit),
            Kind.FILE_TOO_LARGE,
            cause=f"a process may write {rough_size(limit)} to a file, and checkpoints are larger",
            fix=f"on {node.name}: set LimitFSIZE=infinity for the agent's service, or ulimit -f "
            "unlimited in the shell that starts it",
        )


class LockedMemory(NodeCheck):
    id = "locked-memory"
    title = "Locked memory"
    looks_at = "the limit of locked memory, where there are ports for InfiniBand or RoCE"

    def look(self, node: Examined, facts: MachineFacts) -> Finding | None:
        if not any(port.state == "ACTIVE" for port in node.info.inventory.rdma_ports):
            return None
        limit = facts.limits.locked_memory_bytes
        if limit is None:
            return self.passed(node, "unlimited")
        return self.stops(
            node,
            rough_size(limit),
            Kind.NCCL,
            cause=f"a process may lock {rough_size(limit)} of memory, and NCCL locks its buffers "
            "for RDMA",
            fix=f"on {node.name}: set LimitMEMLOCK=infinity for the agent's service, or ulimit -l "
            "unlimited; in a container --ulimit memlock=-1",
        )


class CoreFiles(NodeCheck):
    id = "core-files"
    title = "Core files"
    looks_at = "the limit of core files, and room for one"
    is_for_launch = False

    def look(self, node: Examined, facts: MachineFacts) -> Finding:
        limit = facts.limits.core_bytes
        said = "unlimited" if limit is None else rough_size(limit) if limit else "off"
        free = min((one.free_bytes for one in facts.paths if one.free_bytes is not None), default=0)
        if limit == 0 or (limit or node.info.inventory.memory_total_bytes) < free:
            return self.passed(node, said)
        return self.slows(
            node,
            said,
            Kind.DISK_FULL,
            cause=f"core files are on, and one of a rank may be larger than the {rough_size(free)} "
            "that are free",
            fix=f"on {node.name}: set LimitCORE=0 for the agent's service, or ulimit -c 0",
        )
