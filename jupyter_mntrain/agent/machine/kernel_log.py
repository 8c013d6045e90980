"""Kernel log: finds lines about hardware, disk and memory faults, where this user may read them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

KMSG = Path("/dev/kmsg")
MOST_LINES = 20
"""Maximum number of lines of the kernel's log that are kept with a failure."""
RECORD_BYTES = 8192
"""The kernel's limit of a record."""

_FAULTS = re.compile(
    r"NVRM: Xid|Out of memory|oom-kill|I/O error|EXT4-fs error|XFS .*(error|shutdown)|BTRFS.*error"
    r"|Remounting filesystem read-only|not responding|segfault at|general protection|traps: "
    r"|Link is Down|link down|hung_task|blocked for more than|Machine check|hardware error"
    r"|nf_conntrack: table full|NETDEV WATCHDOG",
    re.IGNORECASE,
)


def fault_lines(since_boot_s: float, path: Path = KMSG) -> tuple[str, ...]:
    """Return the last lines that report a fault; none if the log cannot be read.

    Args:
        since_boot_s: the kernel stamps its lines with this clock.
    """
    found = [
        line
        for time_s, line in kernel_records(path)
        if time_s >= since_boot_s and _FAULTS.search(line)
    ]
    return tuple(found[-MOST_LINES:])


def kernel_records(path: Path = KMSG) -> Iterator[tuple[float, str]]:
    """Yield all records that the kernel still has: seconds since boot, and the line."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return
    try:
        while True:
            try:
                record = os.read(file, RECORD_BYTES)
            except BrokenPipeError:
                continue  # overwritten meanwhile: the next read goes on with the oldest
            except OSError:
                break
            if not record:
                break
            yield from _read(record.decode(errors="replace"))
    finally:
        os.close(file)


def _read(record: str) -> Iterator[tuple[float, str]]:
    """Parse the time and text of a record, ``6,1234,5678901,-;text``."""
    head, _, text = record.partition(";")
    try:
        yield int(head.split(",")[2]) / 1e6, text.partition("\n")[0]
    except (IndexError, ValueError):
        return
