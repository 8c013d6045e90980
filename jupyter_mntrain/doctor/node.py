"""Checks of each node by itself, and of differences between nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from statistics import median
from typing import Final

from jupyter_mntrain.doctor.check import Case, Check, CheckedNode, Finding, NodeCheck
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.lifecycle.clock import MOST_DIFFERENCE_S
from jupyter_mntrain.model.quantities import rough_size
from jupyter_mntrain.model.records.doctor.machine import (
    FoundPath,
    MachineFacts,
    NameLookup,
    PathUse,
)
from jupyter_mntrain.model.text.foreign import shown_name
from jupyter_mntrain.plan.agent_hosts import is_loopback

# Disks: the paths that a job writes to, and their free space.

LEAST_BYTES = tunables.size("doctor.least_free_disk_bytes")
USUAL_BYTES = tunables.size("doctor.usual_free_disk_bytes")

FULL: Final = ("ENOSPC", "EDQUOT")

WRITTEN: Final[tuple[PathUse, ...]] = ("jobs", "checkpoints", "temporary files", "output")
"""What a job does with the paths that it writes to."""


class WritablePaths(NodeCheck):
    id = "writable-paths"
    title = "Paths writable"
    looks_at = "folders for jobs, checkpoints, output and temporary files, as the agent's user"

    def look(self, node: CheckedNode, facts: MachineFacts) -> Finding:
        for one in _written(facts):
            if not one.is_writable or one.kind == "unreadable":
                if one.is_read_only:
                    return self._read_only(node, one)
                cause = f"{facts.user} may not write to {one.path}, which is for {one.use}"
                fix = f"on {node.name}: sudo chown {facts.user} {one.path}"
                if one.kind == "missing":
                    fix = f"on {node.name}: sudo install -d -o {facts.user} {one.path}"
                return self.stops(node, one.path, Kind.NO_PERMISSION, cause=cause, fix=fix)
        return self.passed(node, "yes")

    def _read_only(self, node: CheckedNode, one: FoundPath) -> Finding:
        return self.stops(
            node,
            one.path,
            Kind.READ_ONLY,
            cause=f"the file system of {one.path}, which is for {one.use}, is mounted read-only",
            fix=f"on {node.name}: sudo mount -o remount,rw the file system that findmnt -T "
            f"{one.path} names (dmesg says whether an error made it so); or choose another path",
        )


class DiskSpace(NodeCheck):
    id = "disk-space"
    title = "Free disk"
    looks_at = (
        "free space for jobs, checkpoints, output and temporary files, and whether a quota, or a "
        "file system without room for more files, refuses a write"
    )

    def look(self, node: CheckedNode, facts: MachineFacts) -> Finding | None:
        refused = next((one for one in _written(facts) if one.refused in FULL), None)
        if refused is not None:
            return self._refused(node, refused)
        known = [one for one in _written(facts) if one.free_bytes is not None]
        if not known:
            return None
        least = min(known, key=lambda one: one.free_bytes or 0)
        free = least.free_bytes or 0
        said = rough_size(free)
        if free >= USUAL_BYTES:
            return self.passed(node, said)
        # How much a script writes is not known.
        is_too_little = free < LEAST_BYTES and least.use != "output"
        return (self.stops if is_too_little else self.slows)(
            node,
            said,
            Kind.DISK_FULL,
            cause=f"{said} are free at {least.path}, which is for {least.use}",
            fix=f"on {node.name}: du -xh {least.path} | sort -h | tail; delete old runs with "
            "mntrain rm JOB --checkpoints, or put checkpoints on a larger disk",
        )

    def _refused(self, node: CheckedNode, one: FoundPath) -> Finding:
        said, fix = rough_size(one.free_bytes or 0), f"du -xh {one.path} | sort -h | tail"
        cause = f"nothing more can be written to {one.path}, which is for {one.use}"
        if one.refused == "EDQUOT":
            said, fix = "quota", "quota -s"
            cause += ": the quota of its user is used up"
        elif one.free_files == 0:
            said, fix = "no inodes", f"du -x --inodes {one.path} | sort -n | tail"
            cause += ": its file system has no inodes left for more files"
        fix = f"on {node.name}: {fix}; delete what is not needed, or choose another path"
        return self.stops(node, said, Kind.DISK_FULL, cause=cause, fix=fix)


def _written(facts: MachineFacts) -> list[FoundPath]:
    return [one for one in facts.paths if one.use in WRITTEN]


# Memory: the machine's, and the shared memory of its processes.


LEAST_MEMORY_SHARE = 0.1
"""A machine with less available memory than both of these is short of it."""
LEAST_MEMORY_BYTES = tunables.size("doctor.least_memory_bytes")
SHARED_BYTES = 256 * 2**20
"""Docker gives 64 MiB of shared memory, which data loaders and NCCL exceed."""


class HostMemory(NodeCheck):
    id = "host-memory"
    title = "Memory"
    looks_at = "available memory of the machine"

    def look(self, node: CheckedNode, facts: MachineFacts) -> Finding:  # noqa: ARG002 - inventory's
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

    def look(self, node: CheckedNode, facts: MachineFacts) -> Finding | None:
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


# The limits that ranks inherit from their agent.


OPEN_FILES = 4096
"""Open files that a process must be allowed: 2 per connection, and those of data loaders."""
LEAST_AT_START = 512
"""The same before it raises its limit itself: importing torch takes dozens, and Linux gives
1024."""
LEAST_FILE = 4 * 2**30
"""A process that may write less to a file cannot write the checkpoint of a small model."""


class OpenFileLimit(NodeCheck):
    id = "open-files"
    title = "Open files"
    looks_at = (
        "the limits of open files of a process: the hard one, and the one that it begins with"
    )

    def look(self, node: CheckedNode, facts: MachineFacts) -> Finding:
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

    def look(self, node: CheckedNode, facts: MachineFacts) -> Finding:
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

    def look(self, node: CheckedNode, facts: MachineFacts) -> Finding | None:
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

    def look(self, node: CheckedNode, facts: MachineFacts) -> Finding:
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


# Processors, and of the process that reaps others in a container.


NO_REAPERS: Final = ("sleep", "tail", "cat", "python", "node", "java", "jupyter")
"""Beginnings of the names of first processes that reap only what they started themselves."""

MOST_ZOMBIES: Final = 20
"""Up to this many may just not have been reaped yet."""

SLOW: Final = frozenset({"powersave", "conservative"})
OWN_CHOICE: Final = frozenset({"intel_pstate", "amd-pstate-epp", "amd_pstate_epp"})
"""Drivers under which ``powersave`` follows the load."""


class Governor(NodeCheck):
    id = "cpu-governor"
    title = "CPU governor"
    looks_at = "how the kernel chooses the processors' frequency"
    is_for_launch = False

    def look(self, node: CheckedNode, facts: MachineFacts) -> Finding | None:
        processors = facts.processors
        if not processors.governors:
            return None
        said = ", ".join(map(shown_name, processors.governors))
        slow = SLOW.intersection(processors.governors)
        if not slow or processors.driver in OWN_CHOICE:
            return self.passed(node, said)
        return self.slows(
            node,
            said,
            Kind.SLOW_RANK,
            cause=f"its CPU governor is {', '.join(sorted(slow))}, which keeps the frequency low",
            fix=f"on {node.name}: sudo cpupower frequency-set -g performance",
        )


class FirstProcess(NodeCheck):
    id = "first-process"
    title = "PID 1"
    looks_at = "in a container, whether its first process reaps others"
    is_for_launch = False

    def look(self, node: CheckedNode, facts: MachineFacts) -> Finding | None:
        if not facts.container:
            return None
        name = facts.first_process
        is_known = name.startswith(NO_REAPERS)
        if not is_known and facts.zombies <= MOST_ZOMBIES:
            return self.passed(node, shown_name(name or "unknown"))
        left = f": {facts.zombies} are left" if facts.zombies else ""
        return self.slows(
            node,
            shown_name(name),
            Kind.TOO_MANY_PROCESSES,
            cause=f"its container's first process is {name}, which does not reap ended processes "
            f"of others{left}",
            fix="start the container with --init",
        )


# The clocks: logs are compared by them, and certificates expire by them.


class ClockCheck(Check):
    id = "clock"
    title = "Clock"
    looks_at = "each node's clock compared with the others', and with the driver's if there are two"

    def findings(self, case: Case) -> Iterable[Finding]:
        known = [node for node in case.nodes if node.facts is not None]
        yield from (
            self.unknown(node, "its agent did not report it")
            for node in case.nodes
            if not node.facts
        )
        usual = median([node.clock_ahead_s for node in known]) if len(known) > 2 else 0.0
        yield from (self._judged(node, node.clock_ahead_s - usual) for node in known)

    def _judged(self, node: CheckedNode, ahead_s: float) -> Finding:
        word = "ahead" if ahead_s > 0 else "behind"
        said = f"{abs(ahead_s):.1f} s {word}"
        if abs(ahead_s) - node.clock_error_s <= MOST_DIFFERENCE_S:
            return self.passed(node, "agrees")
        return self.slows(
            node,
            said,
            Kind.CLOCK_OFF,
            cause=f"its clock is {said}",
            fix=f"on {node.name}: sudo timedatectl set-ntp true",
        )


# Names: torch.distributed looks up its own name, and that of each peer.


SLOW_S = 1.0
"""A look-up that takes longer delays every connection of a job: a LAN answers in milliseconds."""


class OwnName(NodeCheck):
    """Check that a node's host name leads to itself. 127.0.1.1, as on Debian, does no harm."""

    id = "host-name"
    title = "Host name"
    looks_at = "where a node's own host name leads to, and how long looking it up takes"

    def look(self, node: CheckedNode, facts: MachineFacts) -> Finding | None:
        own, addresses = facts.own_name, _addresses(node)
        if own is None:
            return None
        if (slow := _slow(own)) is not None:
            return self.found("slows", node, slow, _slow_problem(node, own, slow))
        said = ", ".join(map(shown_name, own.found[:2])) or "no address"
        foreign = [one for one in own.found if not _is_usual(one) and one not in addresses]
        if not own.found or len(foreign) < len(own.found) or not addresses:
            return self.passed(node, said)
        return self.slows(
            node,
            said,
            Kind.NO_ROUTE,
            cause=f"its host name {own.asked} leads to {said}, which is not one of its addresses: "
            "connections to that name reach another machine, or none",
            fix=f"on {node.name}, in /etc/hosts: {next(iter(addresses))} {own.asked}",
        )


class PeerNames(NodeCheck):
    id = "reverse-dns"
    title = "Reverse DNS"
    looks_at = "how long looking up the name of each other node's address takes"

    def look(self, node: CheckedNode, facts: MachineFacts) -> Finding | None:
        if not facts.peer_names:
            return None
        worst = max(facts.peer_names, key=lambda one: one.took_s)
        if (slow := _slow(worst)) is not None:
            return self.found("slows", node, slow, _slow_problem(node, worst, slow))
        return self.passed(node, f"{worst.took_s * 1000:.0f} ms")


def _addresses(node: CheckedNode) -> dict[str, None]:
    """Return a node's addresses in order, without those of virtual interfaces."""
    return {
        address.partition("/")[0]: None
        for interface in node.info.inventory.interfaces
        if interface.kind != "virtual"
        for address in interface.addresses
    }


def _slow(one: NameLookup) -> str | None:
    if one.is_over and one.took_s < SLOW_S:
        return None
    return f"{one.took_s:.1f} s" if one.is_over else f"over {one.took_s:.0f} s"


def _slow_problem(node: CheckedNode, one: NameLookup, said: str) -> Problem:
    return Problem(
        kind=Kind.NO_ANSWER,
        cause=f"looking up {one.asked} takes {said}: torch.distributed waits for it at every "
        "connection",
        fix=f"on {node.name}: add the nodes to /etc/hosts, or correct the name server in "
        "/etc/resolv.conf",
    )


def _is_usual(address: str) -> bool:
    """Whether a host's own name may lead to this address.

    IPv6 is not judged: inventories have IPv4.
    """
    return is_loopback(address) or ":" in address


# The agents' users, where nodes share a file system.


SHARED: Final = (
    "nfs",
    "cifs",
    "smb",
    "lustre",
    "gpfs",
    "beegfs",
    "ceph",
    "glusterfs",
    "fuse.sshfs",
)
"""Beginnings of the types of file systems that several machines mount."""


class SharedAccount(Check):
    id = "user-id"
    title = "User id"
    looks_at = "the agents' user and group ids, where nodes share a file system"
    is_for_launch = False

    def findings(self, case: Case) -> Iterable[Finding]:
        by_path: dict[str, list[tuple[CheckedNode, MachineFacts]]] = defaultdict(list)
        for node in case.nodes:
            if node.facts is not None:
                for path in {one.path for one in node.facts.paths if _is_shared(one.file_system)}:
                    by_path[path].append((node, node.facts))
        said: set[str] = set()
        for path, sharers in by_path.items():
            first = sharers[0][1]
            for node, facts in sharers:
                if node.name in said:
                    continue
                said.add(node.name)
                yield self._judged(node, facts, sharers[0][0], first, path)

    def _judged(
        self,
        node: CheckedNode,
        facts: MachineFacts,
        other: CheckedNode,
        first: MachineFacts,
        path: str,
    ) -> Finding:
        own = f"{facts.uid}:{facts.gid}"
        if facts.uid == first.uid:
            return self.passed(node, own)
        return self.slows(
            node,
            own,
            Kind.NO_PERMISSION,
            cause=f"its agent's user has the id {own}, that of {other.name} "
            f"{first.uid}:{first.gid}: in {path}, which they share, neither may change the other's "
            "files",
            fix=f"run both agents as users with one id, or on {node.name}: sudo usermod -u "
            f"{first.uid} {facts.user}",
        )


def _is_shared(file_system: str) -> bool:
    return file_system.startswith(SHARED)
