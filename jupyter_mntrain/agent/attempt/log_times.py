"""Log times: when each part of a log was written, beside the log. Standard library only, for the
keeper.

torchrun's prefix cannot hold a time, and a process between the ranks and their log could lose or
delay lines. So the keeper notes the log's size while it grows: 16 bytes a mark.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.files import PRIVATE, write_atomically
from jupyter_mntrain.model.lifecycle.clock import Clock

MOST_MARKS = tunables.count("logs.time_marks")

Mark = tuple[int, float]
"""Offset and Unix time: the bytes before it had been written by then."""


class TimeStamper:
    """Writes the marks of one log. A full disk costs times, never the attempt."""

    def __init__(self, log: Path, clock: Clock, *, most: int = MOST_MARKS) -> None:
        self._log = log
        self._path = times_of(log)
        self._clock = clock
        self._most = most
        self._size = 0
        self._count = 0

    def note(self) -> None:
        """Add a mark if the log has grown."""
        with suppress(OSError):
            size = self._log.stat().st_size
            if size <= self._size:
                return
            if self._count >= self._most:
                self._thin()
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE)
            try:
                os.write(descriptor, _packed([(size, self._clock())]))
            finally:
                os.close(descriptor)
            self._size, self._count = size, self._count + 1

    def _thin(self) -> None:
        """Drop every other mark of the older half: who reads old lines needs no tenths."""
        marks = _read(self._path)
        half = len(marks) // 2
        kept = marks[1:half:2] + marks[half:]
        write_atomically(self._path, _packed(kept))
        self._count = len(kept)


def times_of(log: Path) -> Path:
    """Where the marks of a log are."""
    return log.with_name(f"{log.name}.times")


def marks_between(log: Path, begin: int, end: int, now_s: float) -> tuple[Mark, ...]:
    """The marks that tell the times of the bytes between two offsets: up to the first at ``end``
    or after it. What no mark covers yet was written just now.
    """
    return marks_among(_read(times_of(log)), begin, end, now_s)


def marks_among(marks: Sequence[Mark], begin: int, end: int, now_s: float) -> tuple[Mark, ...]:
    """Like :func:`marks_between`, of all marks of a log."""
    if not marks:
        return ()
    first = bisect_left(marks, (begin + 1,))
    last = bisect_left(marks, (end,))
    found = tuple(marks[first : last + 1])
    return found if last < len(marks) else (*found, (max(end, marks[-1][0]), now_s))


def _packed(marks: Iterable[Mark]) -> bytes:
    return array("d", [value for mark in marks for value in mark]).tobytes()


def _read(path: Path) -> list[Mark]:
    values = array("d")
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    values.frombytes(content[: len(content) // 16 * 16])
    return [(int(size), time_s) for size, time_s in zip(values[::2], values[1::2], strict=True)]
