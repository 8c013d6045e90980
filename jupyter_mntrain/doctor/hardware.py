"""Checks of a node's other hardware: errors in the kernel log, and differences between nodes."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from jupyter_mntrain.doctor.check import Case, Check, CheckedNode, Finding, chosen
from jupyter_mntrain.doctor.network_cards import NO_RDMA
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.quantities import duration_text, numbered
from jupyter_mntrain.model.records.doctor.hardware import (
    Firmware,
    GpuSetup,
    Hardware,
    KernelFault,
    KernelFaultKind,
    NetworkCard,
)
from jupyter_mntrain.model.text.foreign import shown_line

# The kernel's log: faults of disks, processors and memory, and what ran out.


FAULT_S = 86_400.0
"""A fault of hardware that the kernel has logged is said for this long, and a lack of memory or of
connections that it follows for this long: those pass."""
SHORTAGE_S = 3600.0

MOST_CHARACTERS: Final = 120


class _Meaning(NamedTuple):
    """The meaning of one kind of line in the kernel log.

    Args:
        recent_s: how long it is said.
    """

    kind: Kind
    recent_s: float
    cause: str
    fix: str


MEANINGS: Final[dict[KernelFaultKind, _Meaning]] = {
    "disk": _Meaning(
        kind=Kind.DISK_ERROR,
        recent_s=FAULT_S,
        cause="a disk or a file system has failed",
        fix="sudo smartctl -a DEVICE; save what is there, and check the file system",
    ),
    "machine check": _Meaning(
        kind=Kind.ERROR,
        recent_s=FAULT_S,
        cause="a processor or memory has reported a hardware error",
        fix="sudo ras-mc-ctl --errors, or sudo mcelog, names the part; replace it",
    ),
    "out of memory": _Meaning(
        kind=Kind.OUT_OF_MEMORY,
        recent_s=SHORTAGE_S,
        cause="memory ran out, and the kernel has killed a process",
        fix="end what uses it: ps aux --sort=-rss | head; or let the job use less",
    ),
    "connections": _Meaning(
        kind=Kind.LINK_BLOCKED,
        recent_s=SHORTAGE_S,
        cause="the firewall's table of connections was full, and packets were dropped",
        fix="sudo sysctl -w net.netfilter.nf_conntrack_max=1048576",
    ),
    "network": _Meaning(
        kind=Kind.LINK_DOWN,
        recent_s=SHORTAGE_S,
        cause="a network card has stopped sending, and was reset",
        fix="update the card's driver and firmware, or the kernel; ethtool -i INTERFACE names them",
    ),
}
"""Xid errors are reported by ``gpu-xid``."""


class KernelLog(Check):
    id = "kernel-log"
    title = "Kernel log"
    looks_at = "recent faults of disks, processors, memory and network cards in the kernel's log"

    def findings(self, case: Case) -> Iterable[Finding]:
        for node in case.nodes:
            if node.facts is None or node.facts.hardware is None:
                yield self.unknown(node, "its agent did not report it")
            elif (faults := node.facts.hardware.kernel) is not None:
                yield from self._judged(node, faults)

    def _judged(self, node: CheckedNode, faults: Iterable[KernelFault]) -> Iterable[Finding]:
        newest = {one.kind: one for one in faults if one.kind in MEANINGS}
        recent = [one for one in newest.values() if one.age_s < MEANINGS[one.kind].recent_s]
        if not recent:
            passed = ", ".join(sorted(newest))
            yield self.passed(node, f"{passed}; long ago" if newest else "no faults")
        for one in recent:
            meaning = MEANINGS[one.kind]
            yield self.slows(
                node,
                one.kind,
                meaning.kind,
                cause=f"{meaning.cause}, {duration_text(one.age_s)} ago: "
                f"{shown_line(one.line, MOST_CHARACTERS)}",
                fix=f"on {node.name}: {meaning.fix}",
            )


# Hardware that should be alike on all nodes: its firmware, and its places.


FAST_MBIT_PER_S: Final = 10_000
"""Slower network cards do nothing that depends on their firmware."""


class _Unlike(Check):
    """The base class of checks that compare nodes of one kind. They never stop a launch."""

    is_for_launch = False

    def findings(self, case: Case) -> Iterable[Finding]:
        seen: defaultdict[str, list[tuple[CheckedNode, str]]] = defaultdict(list)
        for node in case.nodes:
            if node.facts is not None and node.facts.hardware is not None:
                for kind, value in self.values(node, node.facts.hardware).items():
                    seen[kind].append((node, value))
        unlike: dict[str, Finding] = {}
        for kind, found in seen.items():
            counts = Counter(value for _, value in found)
            usual = max(counts, key=lambda value: counts[value])  # of as many, the first
            like = next(node for node, value in found if value == usual)
            for node, value in found:
                if value != usual and node.name not in unlike:
                    unlike[node.name] = self.differs(node, kind, value, like, usual)
        yield from unlike.values()
        compared = {node.name for found in seen.values() if len(found) > 1 for node, _ in found}
        for node in case.nodes:
            if node.name in compared and node.name not in unlike:
                yield self.passed(node, "as the others")

    @abstractmethod
    def values(self, node: CheckedNode, hardware: Hardware) -> dict[str, str]:
        """Return the values to compare, by the kind of component that has them."""

    @abstractmethod
    def differs(
        self, node: CheckedNode, kind: str, value: str, other: CheckedNode, usual: str
    ) -> Finding:
        """Return the finding for a node that differs from most others of its kind."""


class SameFirmware(_Unlike):
    """Check that cards run the same firmware.

    GeForce cards are not compared: each maker has its own.
    """

    id = "firmware"
    title = "Firmware"
    looks_at = (
        "firmware of GPUs (VBIOS, InfoROM), of network cards from 10 Gbit/s and of adapters for "
        "RDMA, where several nodes have the same model"
    )

    def values(self, node: CheckedNode, hardware: Hardware) -> dict[str, str]:  # noqa: ARG002
        fast = {card.name for card in hardware.cards if _is_fast(card)}
        found: defaultdict[str, set[str]] = defaultdict(set)
        for one in hardware.firmware:
            if _is_compared(one, fast):
                found[f"{one.kind} {one.model}"].add(one.version)
        return {kind: " and ".join(sorted(versions)) for kind, versions in found.items()}

    def differs(
        self, node: CheckedNode, kind: str, value: str, other: CheckedNode, usual: str
    ) -> Finding:
        return self.slows(
            node,
            shown_line(value),
            Kind.NODE,
            cause=f"its {shown_line(kind)} has the firmware {shown_line(value)}, that of "
            f"{other.name} {shown_line(usual)}: their faults and speed may differ",
            fix=f"on {node.name}: install the firmware that the others have, with the tool of the "
            "machine's or the card's maker (mlxfwmanager, nvfwupd), and restart the machine",
        )


class SameTopology(_Unlike):
    """Check that nodes with the same GPUs have the same topology.

    It decides how fast ranks exchange data.
    """

    id = "topology"
    title = "Topology"
    looks_at = (
        "the NUMA nodes of GPUs, network cards and adapters for RDMA, and the NVLinks that are up, "
        "on nodes with the same GPUs"
    )

    def values(self, node: CheckedNode, hardware: Hardware) -> dict[str, str]:
        gpus = chosen(node, [one for one in hardware.gpus if not one.trouble])
        if not gpus:
            return {}
        names = Counter(one.name for one in gpus)
        kind = " and ".join(f"{count} × {name}" for name, count in sorted(names.items()))
        if all(one.nvlinks is None for one in gpus):
            return {kind: _places(gpus, hardware)}
        links = ", ".join(str(one.nvlinks or 0) for one in gpus)
        return {kind: f"{_places(gpus, hardware)}, with {links} NVLinks up"}

    def differs(
        self, node: CheckedNode, kind: str, value: str, other: CheckedNode, usual: str
    ) -> Finding:
        return self.slows(
            node,
            "unlike the others",
            Kind.SLOW_RANK,
            cause=f"{value} here, and {usual} on {other.name}, which has {shown_line(kind)}, too: "
            "its ranks exchange data over other paths, and all wait for the slowest",
            fix=f"put the cards of {node.name} into the slots that {other.name} uses, and set NUMA "
            "alike in the firmware of both; nvidia-smi topo -m shows where each is, and nvidia-smi "
            "nvlink --status which links are down: seat those bridges or cards again",
        )


def _places(gpus: Sequence[GpuSetup], hardware: Hardware) -> str:
    """Describe which devices are attached to which NUMA node."""
    near: defaultdict[int, list[int]] = defaultdict(list)
    for one in gpus:
        if one.numa_node is not None:
            near[one.numa_node].append(one.index)
    at = {numa: [numbered("GPU", indices)] for numa, indices in near.items()}
    for card in hardware.cards:
        if card.numa_node is not None and _is_fast(card):
            named = f"a card for {(card.most_mbit_per_s or 0) // 1000} Gbit/s"
            at.setdefault(card.numa_node, []).append(named)
    for numa in hardware.adapter_numa_nodes.values():
        at.setdefault(numa, []).append("an adapter")
    if not at.keys() - {0}:
        return "all on one NUMA node"
    told = (f"{', '.join(sorted(at[numa]))} on NUMA node {numa}" for numa in sorted(at))
    return ", ".join(told)


def _is_fast(card: NetworkCard) -> bool:
    return (card.most_mbit_per_s or 0) >= FAST_MBIT_PER_S


def _is_compared(one: Firmware, fast: set[str]) -> bool:
    if one.kind == "GPU":
        return NO_RDMA not in one.model
    return one.kind == "adapter" or one.device in fast
