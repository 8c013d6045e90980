"""torchrun log: parses how each rank ended. Pure."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from jupyter_mntrain.agent.failure.printed import tail
from jupyter_mntrain.model._record import Record

# NCCL log: when NCCL last said something in the output of this node's ranks (``NCCL_DEBUG=INFO``).
#
# NCCL from 2.26 on writes the time into each line if ``NCCL_DEBUG_TIMESTAMP_LEVELS`` says so, which
# a launch sets. Without it, the time is known only if nothing was printed after NCCL's last line.


_NCCL_LINE = re.compile(
    r"(?:\[(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.\d+)?\] )?\S+:\d+:\d+ \[-?\d+\] "
    r"(?:\S+ )?NCCL (?:INFO|WARN) "
)
"""``[2026-05-05 06:16:47] node1:189884:189901 [3] NCCL INFO Connected all rings``; a warning has
file and line before ``NCCL WARN``."""


def last_nccl_line_s(attempt: Path) -> float | None:
    """Return the Unix time, by this node's clock, of NCCL's last line; ``None`` if unknown."""
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
    """Return when the last of NCCL's lines was printed; ``None`` if unknown or if there is none.

    Args:
        written_s: Unix time at which the last line was.
    """
    spoken = [line for line in lines if line.strip()]
    for number, line in enumerate(reversed(spoken)):
        if match := _NCCL_LINE.match(line):
            if match["time"] is not None:
                return time.mktime(time.strptime(match["time"], "%Y-%m-%d %H:%M:%S"))
            return written_s if number == 0 else None
    return None


TRUSTED_S = 120.0
"""torchrun writes local times. A time further than this from the end is in another time zone."""

CLOSING = (-signal.SIGTERM, -signal.SIGKILL)
"""Exit codes of ranks that torchrun itself ends."""

_ENTRY = re.compile(
    r"time +: (?P<time>\S+)\n +host +: .*\n +rank +: \d+ \(local_rank: (?P<local>\d+)\)\n"
    r" +exitcode +: (?P<code>-?\d+) \(pid: (?P<pid>\d+)\)"
)
"""Entry of the table that torchrun prints at its end; the first failure is last."""

_LINE = re.compile(
    r"failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<local>\d+) \(pid: (?P<pid>\d+)\)"
)
"""Line that torchrun logs before the table."""

_ENDED = re.compile(r"Sending process (\d+) closing signal")


class Failure(Record, frozen=True):
    """A failed rank.

    Args:
        exit_code: negative for a signal.
        was_ended: by torchrun, because another rank had failed.
        time_s: by this machine's clock; if only its log tells it, in whole seconds.
    """

    local_rank: int
    exit_code: int
    was_ended: bool = False
    time_s: float | None = None

    def time_before(self, end_s: float) -> float:
        """Return the time of the failure if it is plausible for an attempt that ended at ``end_s``,
        else ``end_s``.
        """
        if self.time_s is None or not end_s - TRUSTED_S <= self.time_s <= end_s:
            return end_s
        return self.time_s


def rank_failures(log: str) -> list[Failure]:
    """Return all failures in torchrun's log, the earliest first."""
    ended = set(_ENDED.findall(log))
    found: dict[int, Failure] = {}
    for match in [*reversed(list(_ENTRY.finditer(log))), *_LINE.finditer(log)]:
        local, code = int(match["local"]), int(match["code"])
        was_ended = match["pid"] in ended and code in CLOSING
        stamp = match.groupdict().get("time")
        failure = Failure(
            local_rank=local,
            exit_code=code,
            was_ended=was_ended,
            time_s=_seconds(stamp) if stamp else None,
        )
        found.setdefault(local, failure)
    return list(found.values())


def _seconds(stamp: str) -> float | None:
    try:
        return time.mktime(time.strptime(stamp, "%Y-%m-%d_%H:%M:%S"))
    except (ValueError, OverflowError):
        return None
