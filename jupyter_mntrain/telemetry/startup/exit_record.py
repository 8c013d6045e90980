"""Exit record: how a rank's Python process ended, as recorded by its hooks."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.telemetry.startup.mntrain_rank_hooks import (
    CRASH_FILE,
    EXIT_FILE,
    EXITS_FILE,
    MOST_MESSAGE,
)


class Raised(Record, frozen=True):
    """An exception that a rank raised.

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
        """Type and message, as Python prints them."""
        return f"{self.kind}: {self.message}" if self.message else self.kind


class ExitRecord(Record, frozen=True):
    """The record of how a rank ended.

    Args:
        monotonic_s: when it was written, by the machine's monotonic clock.
        is_over: Python reached its end; otherwise it was ended, crashed, or used ``os._exit``.
        escaped: the exception that nothing caught.
        in_threads: exceptions that ended other threads.
        address_bytes: that the process may map; ``None`` = unlimited.
    """

    pid: int
    monotonic_s: float
    is_over: bool
    escaped: Raised | None = None
    in_threads: tuple[Raised, ...] = ()
    address_bytes: int | None = None


def read_exit_record(metrics: Path, rank: Rank) -> ExitRecord | None:
    """Read a rank's exit record; ``None`` without one."""
    try:
        content = (metrics / EXIT_FILE.format(rank)).read_bytes()
        return msgspec.json.decode(content, type=ExitRecord)
    except (OSError, msgspec.MsgspecError):
        return None


class ProcessExit(Record, frozen=True):
    """How a process ended, as torchrun saw it; ``status`` as from :func:`os.waitpid`."""

    pid: int
    status: int
    monotonic_s: float

    @property
    def exit_code(self) -> int:
        """The exit code; negative for a signal."""
        return os.waitstatus_to_exitcode(self.status)


def read_exits(metrics: Path) -> dict[int, ProcessExit]:
    """Read how torchrun's children ended, by pid."""
    try:
        lines = (metrics / EXITS_FILE).read_bytes().splitlines()
    except OSError:
        return {}
    found = {}
    for line in lines:
        with suppress(msgspec.MsgspecError):  # cut off by a full disk
            one = msgspec.json.decode(line, type=ProcessExit)
            found[one.pid] = one
    return found


def read_crash(metrics: Path, rank: Rank) -> str:
    """Read the end of the stack traces that a crash left; empty if there are none."""
    try:
        with (metrics / CRASH_FILE.format(rank)).open(errors="replace") as file:
            return file.read(10 * MOST_MESSAGE)
    except OSError:
        return ""
