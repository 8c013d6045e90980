"""Checks of the kernel's log: faults of disks, processors and memory, and what ran out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from jupyter_mntrain.doctor.check import Case, Check, Examined
from jupyter_mntrain.doctor.finding import Finding
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.quantities import duration_text
from jupyter_mntrain.model.records.doctor.hardware import KernelFault, KernelFaultKind
from jupyter_mntrain.model.text.foreign import shown_line

FAULT_S = tunables.seconds("doctor.recent_fault_s")
SHORTAGE_S = tunables.seconds("doctor.recent_shortage_s")

MOST_CHARACTERS: Final = 120


class _Meaning(NamedTuple):
    """What a kind of line means.

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
        cause="a processor or memory has reported an error of hardware",
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
"""Xid errors are told of by ``gpu-xid``."""


class KernelLog(Check):
    id = "kernel-log"
    title = "Kernel log"
    looks_at = "recent faults of disks, processors, memory and network cards in the kernel's log"

    def findings(self, case: Case) -> Iterable[Finding]:
        for node in case.nodes:
            if node.facts is None or node.facts.hardware is None:
                yield self.unknown(node, "its agent did not tell")
            elif (faults := node.facts.hardware.kernel) is not None:
                yield from self._judged(node, faults)

    def _judged(self, node: Examined, faults: Iterable[KernelFault]) -> Iterable[Finding]:
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
