"""Job logs: reads the last lines of every node, each with its rank and time."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence

import msgspec

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

_BAR = re.compile(r"\[\d+:\d+(?::\d+)?[<,][^\]]*\]\s*$")
"""The end of a state of tqdm's progress bar: time, rate and what is shown beside them."""


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


class TornLines:
    """Puts lines together as ranks wrote them, with or without the labels of torchrun.

    torchrun reads what a rank has written so far, and labels each piece: what comes in pieces, as
    by ``print(a, b)`` of an unbuffered Python, has a label in its middle, and a progress bar that
    redraws its line has an empty one before each state. Of bars in a row only the last is kept, as
    on a screen.

    Args:
        node: whose log it is: its name is in the labels.
    """

    def __init__(self, node: str) -> None:
        self._node = node
        self._label = re.compile(rf"\[{re.escape(node)} rank (\d+)\] ?")
        self._begun: dict[Rank | None, tuple[int, str]] = {}

    def whole(self, lines: Sequence[tuple[int, str]]) -> list[tuple[int, LogLine]]:
        """Lines that ended, each with the offset of its end."""
        found: list[tuple[int, LogLine]] = []
        gone: set[int] = set()
        redrawn: dict[Rank | None, list[int]] = defaultdict(list)

        def add(end: int, rank: Rank | None, text: str) -> None:
            if _BAR.search(text):
                gone.update(redrawn[rank])
                redrawn[rank] = [len(found)]
            elif not text.strip():
                redrawn[rank].append(len(found))
            else:
                redrawn[rank] = []
            found.append((end, self._line(rank, text)))

        for end, line in lines:
            pieces = self._pieces(line)
            for rank, text in pieces[:-1]:
                if _BAR.search(text):
                    add(end, rank, text)
                else:
                    self._begun[rank] = (end, self._text_before(rank) + text)
            rank, text = pieces[-1]
            add(end, rank, self._text_before(rank) + text)
        return [one for at, one in enumerate(found) if at not in gone]

    def rest(self) -> list[tuple[int, LogLine]]:
        """Lines that have begun, as far as they are there."""
        begun, self._begun = self._begun, {}
        return [(end, self._line(rank, text)) for rank, (end, text) in begun.items()]

    def _pieces(self, line: str) -> list[tuple[Rank | None, str]]:
        before, *labeled = self._label.split(line)
        pieces: list[tuple[Rank | None, str]] = [
            (Rank(int(rank)), text) for rank, text in zip(labeled[::2], labeled[1::2], strict=True)
        ]
        return [(None, before), *pieces] if before or not pieces else pieces

    def _text_before(self, rank: Rank | None) -> str:
        return self._begun.pop(rank, (0, ""))[1]

    def _line(self, rank: Rank | None, text: str) -> LogLine:
        return LogLine(node=self._node, rank=rank, text=text)


async def tail_log(source: LogSource, *, rank: int | None, tail: int) -> list[LogLine]:
    """The last ``tail`` lines of one node, or of one rank. Reads no more than necessary."""
    window = FIRST_WINDOW_BYTES
    while tail > 0:
        part = await _read_end(source.read, window)
        lines = cut_lines(part.content, part.offset, is_first=part.offset == 0)
        torn = TornLines(source.node)
        whole = [*torn.whole(lines), *torn.rest()]
        found = [(end, line) for end, line in whole if rank in (None, line.rank)]
        if len(found) >= tail or window >= min(part.size, LAST_WINDOW_BYTES):
            return await timed(source, found[-tail:])
        window *= 4
    return []


async def timed(source: LogSource, lines: Sequence[tuple[int, LogLine]]) -> list[LogLine]:
    """Ask when lines, given with the offset of their ends, were written."""
    if not lines:
        return []
    marks = await source.times(lines[0][0] - 1, lines[-1][0])
    offsets = [offset for offset, _ in marks]

    def time_of(end: int) -> float | None:
        return marks[min(bisect_left(offsets, end), len(marks) - 1)][1] if marks else None

    return [msgspec.structs.replace(line, time_s=time_of(end)) for end, line in lines]


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
