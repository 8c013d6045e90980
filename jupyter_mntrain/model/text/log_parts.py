"""Log parts: an agent's answers about a job's log."""

from __future__ import annotations

from jupyter_mntrain.model._record import Record

LOG_SIZE_HEADER = "Mntrain-Log-Size"
LOG_OFFSET_HEADER = "Mntrain-Log-Offset"
"""Offset of the first byte in the answer: after the requested one if the log was trimmed."""


class LogPart(Record, frozen=True):
    """Bytes of a log from ``offset`` on, and the size of the whole log."""

    content: bytes
    offset: int
    size: int


class LogTimes(Record, frozen=True):
    """When parts of a log were written, as pairs ``(offset, Unix time)`` by the attempt's clock.

    The bytes before an offset had been written by then. Empty for old logs without times.
    """

    marks: tuple[tuple[int, float], ...] = ()
