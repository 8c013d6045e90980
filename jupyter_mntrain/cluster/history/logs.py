"""Job logs: reads the last lines of every node, each with its rank and time."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Sequence

from jupyter_mntrain.model import tunables
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.text.log_parts import LogPart

FIRST_WINDOW_BYTES = tunables.size("cluster.log_first_read_bytes")
LAST_WINDOW_BYTES = tunables.size("cluster.log_last_read_bytes")


ReadLog = Callable[[int, int], Awaitable[LogPart]]
"""``(offset, limit) → part``; a negative offset counts from the end. The part may be shorter than
requested."""

Marks = Sequence[tuple[int, float]]
ReadTimes = Callable[[int, int], Awaitable[Marks]]
"""``(begin, end) → marks`` of :class:`~jupyter_mntrain.model.text.log_parts.LogTimes`."""

_RANK = re.compile(r"\[(?P<node>\S+) rank (?P<rank>\d+)\] ?")


class LogSource(Record, frozen=True):
    """The log of a job on one node."""

    node: str
    read: ReadLog
    times: ReadTimes


class LogLine(Record, frozen=True):
    """One line. ``rank`` is ``None`` for output of torchrun itself; ``time_s``, by the clock that
    all nodes of an attempt share, for the log of a job that began before logs had times.
    """

    node: str
    rank: Rank | None
    text: str
    time_s: float | None = None


def parse_line(node: str, line: str, time_s: float | None = None) -> LogLine:
    """Parse ``[NODE rank R] text``, with the prefix that torchrun is configured to write."""
    match = _RANK.match(line)
    if match is None or match["node"] != node:
        return LogLine(node=node, rank=None, text=line, time_s=time_s)
    rank = Rank(int(match["rank"]))
    return LogLine(node=node, rank=rank, text=line[match.end() :], time_s=time_s)


async def tail_log(source: LogSource, *, rank: int | None, tail: int) -> list[LogLine]:
    """The last ``tail`` lines of one node, or of one rank. Reads no more than necessary."""
    window = FIRST_WINDOW_BYTES
    while tail > 0:
        part = await _read_end(source.read, window)
        lines = cut_lines(part.content, part.offset, is_first=part.offset == 0)
        found = [
            (end, text)
            for end, text in lines
            if rank is None or parse_line(source.node, text).rank == rank
        ]
        if len(found) >= tail or window >= min(part.size, LAST_WINDOW_BYTES):
            return await timed(source, found[-tail:])
        window *= 4
    return []


async def timed(source: LogSource, lines: Sequence[tuple[int, str]]) -> list[LogLine]:
    """Parse lines, given with the offset of their ends, and ask when they were written."""
    if not lines:
        return []
    marks = await source.times(lines[0][0] - 1, lines[-1][0])
    offsets = [offset for offset, _ in marks]

    def time_of(end: int) -> float | None:
        return marks[min(bisect_left(offsets, end), len(marks) - 1)][1] if marks else None

    return [parse_line(source.node, text, time_of(end)) for end, text in lines]


def cut_lines(data: bytes, begin: int, *, is_first: bool) -> list[tuple[int, str]]:
    """Cut bytes of a log, from ``begin`` on, into lines with the offsets of their ends.

    Args:
        is_first: a line begins at ``begin``; otherwise the first one is half and left out.
    """
    lines, end = [], begin
    for line in data.split(b"\n"):
        end += len(line) + 1
        # A progress bar redraws its line with \r: keep only what it showed last.
        text = line.decode(errors="replace").rstrip("\r").rpartition("\r")[2]
        lines.append((end, text))
    if not data or data.endswith(b"\n"):
        lines.pop()
    elif lines:
        lines[-1] = (end - 1, lines[-1][1])
    return lines if is_first else lines[1:]


async def _read_end(read: ReadLog, window: int) -> LogPart:
    part = await read(-window, window)
    content = part.content
    while content and part.offset + len(content) < part.size:
        # Up to its size at the start: a growing log must not keep us reading.
        begin = part.offset + len(content)
        more = await read(begin, part.size - begin)
        if not more.content:
            break
        content += more.content
    return LogPart(content, part.offset, part.size)
