"""torchrun log: parses how each rank ended. Pure."""

from __future__ import annotations

import re
import signal
import time

from jupyter_mntrain.model._record import Record

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
    """A rank that failed.

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
        """Return its time if plausible for an attempt that ended at ``end_s``, else ``end_s``."""
        if self.time_s is None or not end_s - TRUSTED_S <= self.time_s <= end_s:
            return end_s
        return self.time_s


def rank_failures(log: str) -> list[Failure]:
    """Return all failures in torchrun's log, the first one first."""
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
