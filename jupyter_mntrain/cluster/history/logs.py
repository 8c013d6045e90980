"""Job logs: reads the last lines of every node, each with its rank."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from jupyter_mntrain.model import tunables
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.ids import Rank

FIRST_WINDOW_BYTES = tunables.size("cluster.log_first_read_bytes")
LAST_WINDOW_BYTES = tunables.size("cluster.log_last_read_bytes")

ReadLog = Callable[[int, int], Awaitable[tuple[bytes, int]]]
"""``(offset, limit) → (bytes, size of the whole log)``; a negative offset counts from the end.
It may return fewer bytes than requested."""

_RANK = re.compile(r"\[(?P<node>\S+) rank (?P<rank>\d+)\] ?")


class LogLine(Record, frozen=True):
    """One line. ``rank`` is ``None`` for output of torchrun itself."""

    node: str
    rank: Rank | None
    text: str


def parse_line(node: str, line: str) -> LogLine:
    """Parse ``[NODE rank R] text``, with the prefix that torchrun is configured to write."""
    match = _RANK.match(line)
    if match is None or match["node"] != node:
        return LogLine(node=node, rank=None, text=line)
    return LogLine(node=node, rank=Rank(int(match["rank"])), text=line[match.end() :])


async def tail_log(read: ReadLog, node: str, *, rank: int | None, tail: int) -> list[LogLine]:
    """The last ``tail`` lines of one node, or of one rank. Reads no more than necessary."""
    window = FIRST_WINDOW_BYTES
    while tail > 0:
        data, size = await _read_end(read, window)
        parsed = [parse_line(node, line) for line in _whole_lines(data, is_all=window >= size)]
        found = [line for line in parsed if rank is None or line.rank == rank]
        if len(found) >= tail or window >= min(size, LAST_WINDOW_BYTES):
            return found[-tail:]
        window *= 4
    return []


async def _read_end(read: ReadLog, window: int) -> tuple[bytes, int]:
    data, size = await read(-window, window)
    end = size  # its size at the start: a growing log must not keep us reading
    begin = max(0, size - window)
    while data and begin + len(data) < end:
        more, _ = await read(begin + len(data), end - begin - len(data))
        if not more:
            break
        data += more
    return data, size


def _whole_lines(data: bytes, *, is_all: bool) -> list[str]:
    # A progress bar redraws its line with \r: keep only what it showed last.
    lines = data.decode(errors="replace").split("\n")
    if not is_all:
        lines = lines[1:]
    if lines and not lines[-1]:
        lines.pop()
    return [line.rstrip("\r").rpartition("\r")[2] for line in lines]
