"""Kernel faults: what the kernel has logged of hardware, disks, memory and the network since boot.

The log is the machine's: what it says of other containers is left out.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Final

from jupyter_mntrain.agent.failure.kernel_log import kernel_records
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.records.doctor.hardware import KernelFault, KernelFaultKind

MOST_OF_A_KIND = tunables.count("doctor.most_kernel_faults")
MOST_CHARACTERS = 300

_KINDS: Final[tuple[tuple[KernelFaultKind, re.Pattern[str]], ...]] = (
    ("GPU", re.compile(r"NVRM: Xid \([^)]*\): (?P<xid>\d+)")),
    (
        "disk",
        # Not of drives for disks that can be taken out, which say so while they have none.
        re.compile(
            r"(I/O|critical medium) error(?!.*\b(dev|device) (fd|sr|loop)\d)|EXT4-fs error"
            r"|XFS .*(error|shut ?down)|BTRFS.*error|Remounting filesystem read-only",
            re.IGNORECASE,
        ),
    ),
    ("machine check", re.compile(r"\[Hardware Error\]|Machine check events logged")),
    # Where a control group ran out, it was a container, and its own fault.
    ("out of memory", re.compile(r"(?<!cgroup )out of memory: kill(ed)? process", re.IGNORECASE)),
    ("connections", re.compile(r"nf_conntrack: .*table full", re.IGNORECASE)),
    ("network", re.compile(r"NETDEV WATCHDOG", re.IGNORECASE)),
)
_WORDS: Final = ("nvrm", "error", "shut", "read-only", "machine check", "memory", "table", "netdev")
"""Each of these kinds has one."""


def read_kernel_faults(path: Path) -> tuple[KernelFault, ...] | None:
    """The newest of each kind; ``None`` if the log may not be read."""
    if not os.access(path, os.R_OK):
        return None
    now_s = time.monotonic()  # the kernel stamps its lines with this clock
    by_kind: dict[KernelFaultKind, list[KernelFault]] = {kind: [] for kind, _ in _KINDS}
    records = list(kernel_records(path))
    text = "\n".join(line for _, line in records).lower()
    words = [one for one in _WORDS if one in text]  # mostly one or two of thousands of lines
    for time_s, line in records:
        lowered = line.lower()
        is_asked = any(word in lowered for word in words)
        found = _fault(line, now_s - time_s) if is_asked else None
        if found is not None:
            by_kind[found.kind].append(found)
    newest = (one for faults in by_kind.values() for one in faults[-MOST_OF_A_KIND:])
    return tuple(sorted(newest, key=lambda one: -one.age_s))


def _fault(line: str, age_s: float) -> KernelFault | None:
    for kind, pattern in _KINDS:
        if found := pattern.search(line):
            xid = int(found["xid"]) if kind == "GPU" else None
            return KernelFault(kind, line[:MOST_CHARACTERS], max(0.0, age_s), xid)
    return None
