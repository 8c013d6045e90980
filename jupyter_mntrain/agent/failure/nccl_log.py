"""NCCL log: when NCCL last said something in the output of this node's ranks (``NCCL_DEBUG=INFO``).

NCCL from 2.26 on writes the time into each line if ``NCCL_DEBUG_TIMESTAMP_LEVELS`` says so, which a
launch sets. Without it, the time is known only if nothing was printed after NCCL's last line.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path

from jupyter_mntrain.agent.failure.printed import tail

_LINE = re.compile(
    r"(?:\[(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.\d+)?\] )?\S+:\d+:\d+ \[-?\d+\] "
    r"(?:\S+ )?NCCL (?:INFO|WARN) "
)
"""``[2026-05-05 06:16:47] node1:189884:189901 [3] NCCL INFO Connected all rings``; a warning has
file and line before ``NCCL WARN``."""


def last_nccl_line_s(attempt: Path) -> float | None:
    """Return the Unix time of NCCL's last line on this node, by its clock; ``None`` if unknown."""
    times = []
    for path in (attempt / "ranks").glob("*/attempt_*/*/std*.log"):
        try:
            written_s = path.stat().st_mtime
            found = last_said_s(tail(path).splitlines(), written_s)
        except OSError:  # deleted meanwhile
            continue
        if found is not None:
            times.append(found)
    return max(times, default=None)


def last_said_s(lines: Sequence[str], written_s: float) -> float | None:
    """Return when the last of NCCL's lines was printed; ``None`` if unknown, or if there is none.

    Args:
        written_s: Unix time at which the last line was.
    """
    spoken = [line for line in lines if line.strip()]
    for number, line in enumerate(reversed(spoken)):
        if match := _LINE.match(line):
            if match["time"] is not None:
                return time.mktime(time.strptime(match["time"], "%Y-%m-%d %H:%M:%S"))
            return written_s if number == 0 else None
    return None
