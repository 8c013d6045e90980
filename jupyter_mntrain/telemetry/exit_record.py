"""Exit record: how a rank's Python ended, as its hooks wrote it down."""

from __future__ import annotations

from pathlib import Path

import msgspec

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.telemetry.startup.mntrain_rank_hooks import CRASH_FILE, EXIT_FILE, MOST_MESSAGE


class Raised(Record, frozen=True):
    """An exception of a rank.

    Args:
        kind: name of its type, without the module.
        frames: (file, line, function), the innermost last.
        monotonic_s: by the machine's monotonic clock.
        causes: what it was raised from, the nearest first: ``Type: message``.
    """

    kind: str
    module: str
    message: str
    monotonic_s: float
    frames: tuple[tuple[str, int | None, str], ...] = ()
    traceback: str = ""
    causes: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """Type and message as Python prints them."""
        return f"{self.kind}: {self.message}" if self.message else self.kind


class ExitRecord(Record, frozen=True):
    """How a rank ended.

    Args:
        monotonic_s: when it was written, by the machine's monotonic clock.
        is_over: Python reached its end; otherwise it was ended, crashed, or used ``os._exit``.
        escaped: the exception that nothing caught.
        in_threads: exceptions that ended other threads.
    """

    pid: int
    monotonic_s: float
    is_over: bool
    escaped: Raised | None = None
    in_threads: tuple[Raised, ...] = ()


def read_exit_record(metrics: Path, rank: Rank) -> ExitRecord | None:
    """Read a rank's exit record; ``None`` without one."""
    try:
        content = (metrics / EXIT_FILE.format(rank)).read_bytes()
        return msgspec.json.decode(content, type=ExitRecord)
    except (OSError, msgspec.MsgspecError):
        return None


def had_hooks(metrics: Path, rank: Rank) -> bool:
    """Whether the rank's Python installed its hooks: then what it did not record did not happen."""
    return (metrics / CRASH_FILE.format(rank)).exists()


def read_crash(metrics: Path, rank: Rank) -> str:
    """Read the end of the stacks that a crash left; empty without one."""
    try:
        with (metrics / CRASH_FILE.format(rank)).open(errors="replace") as file:
            return file.read(10 * MOST_MESSAGE)
    except OSError:
        return ""
