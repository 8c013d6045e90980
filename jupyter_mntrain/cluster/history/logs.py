"""Job logs: reads their last lines, or all lines merged by time, each with its rank."""

from __future__ import annotations

import asyncio
import heapq
import re
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

import msgspec

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import MntrainError, SpecError
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.job import JobView, Placement
from jupyter_mntrain.model.text.foreign import without_color
from jupyter_mntrain.model.text.log_parts import LogPart

# Placements of a job that a request names, by rank or node.


def placements_with(
    view: JobView, rank: int | None = None, node: str | None = None
) -> list[Placement]:
    """Return the job's placements, or those of one rank or node.

    Raises:
        SpecError: the job has no such rank or node.
    """
    placements = view.attempt.placements
    if node is not None and all(node not in (p.node, p.node_id) for p in placements):
        names = ", ".join(p.node for p in placements)
        raise SpecError(f"job {view.job_id} does not run on {node!r}", fix=f"use one of {names}")
    if rank is not None and all(rank not in p.ranks for p in placements):
        raise SpecError(
            f"job {view.job_id} has no rank {rank}",
            fix=f"use one from 0 to {view.attempt.world_size - 1}",
        )
    return [
        placement
        for placement in placements
        if (node is None or node in (placement.node, placement.node_id))
        and (rank is None or rank in placement.ranks)
    ]


# Job logs: reads the last lines of every node, each with its rank and time.


FIRST_WINDOW_BYTES = 64 * 2**10
"""How much of a log's end is read first for the last lines of one rank; each try reads more."""
LAST_WINDOW_BYTES = 8 * 2**20
"""How much of a log is searched backward for the last lines of one rank."""


ReadLog = Callable[[int, int], Awaitable[LogPart]]
"""``(offset, limit) → part``; a negative offset counts from the end. The part may be shorter than
requested."""

Marks = Sequence[tuple[int, float]]
ReadTimes = Callable[[int, int], Awaitable[Marks]]
"""``(begin, end) → marks`` of :class:`~jupyter_mntrain.model.text.log_parts.LogTimes`."""

_BAR = re.compile(r"\[\d+:\d+(?::\d+)?[<,][^\]]*\]\s*$")
"""The end of a state of tqdm's progress bar: time, rate and what is shown next to them."""


class LogSource(Record, frozen=True):
    """The log of a job on one node."""

    node: str
    read: ReadLog
    times: ReadTimes


class LogLine(Record, frozen=True):
    """One line of a log. ``rank`` is ``None`` for output of torchrun itself. ``time_s`` is by the
    clock that all nodes of an attempt share; ``None`` in logs of old jobs, which have no times.
    """

    node: str
    rank: Rank | None
    text: str
    time_s: float | None = None


class TornLines:
    """Joins pieces of log lines as ranks wrote them, with or without torchrun's labels.

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
        """Return the finished lines, each with the offset of its end."""
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
        """Return the unfinished lines, and forget them."""
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
    """Return the last ``tail`` lines of one node or rank. Reads no more than necessary."""
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
    """Add to lines the time at which they were written; each comes with the offset of its end."""
    if not lines:
        return []
    marks = await source.times(lines[0][0] - 1, lines[-1][0])
    offsets = [offset for offset, _ in marks]

    def time_of(end: int) -> float | None:
        return marks[min(bisect_left(offsets, end), len(marks) - 1)][1] if marks else None

    return [msgspec.structs.replace(line, time_s=time_of(end)) for end, line in lines]


def cut_lines(data: bytes, begin: int, *, is_first: bool) -> list[tuple[int, str]]:
    """Split bytes of a log, which start at offset ``begin``, into lines with their end offsets.

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


# Whole logs: all lines of a job from the first to the last, merged by time, a piece at a time.
#
# A log may have 128 MiB on each of many nodes, so no more than one piece of each node is in memory.


PIECE_BYTES = 2**20
"""How much of each node's log is held at once while all of it is read."""

Pieces = AsyncGenerator[list[LogLine], None]


class LogReader:
    """Reads one node's log in order, and continues where it stopped when the log has grown.

    Args:
        rank: only lines of this global rank.
    """

    def __init__(self, source: LogSource, *, rank: int | None = None) -> None:
        self._source = source
        self._rank = rank
        self._position = 0
        self._torn = TornLines(source.node)

    async def pieces(self, *, with_unfinished: bool = False) -> Pieces:
        """Yield the new lines, up to the log's size at the start.

        Args:
            with_unfinished: also a last line that is still being written.
        """
        end = (await self._source.read(0, 1)).size
        rest = b""
        while (begin := self._position + len(rest)) < end:
            part = await self._source.read(begin, min(PIECE_BYTES, end - begin))
            if not part.content:
                break
            if part.offset > begin:
                yield [self._said(f"… {part.offset - begin:,} bytes were not kept …")]
                # Half a line remains of the one at which the log goes on.
                after = part.content.find(b"\n") + 1 or len(part.content)
                self._position, rest = part.offset + after, part.content[after:]
            else:
                rest += part.content
            whole = rest[: rest.rfind(b"\n") + 1]
            lines = cut_lines(whole, self._position, is_first=True)
            self._position, rest = self._position + len(whole), rest[len(whole) :]
            yield self._of_rank(await timed(self._source, self._torn.whole(lines)))
        if with_unfinished:
            lines = cut_lines(rest, self._position, is_first=True)
            last = [*self._torn.whole(lines), *self._torn.rest()]
            yield self._of_rank(await timed(self._source, last))

    async def pieces_or_trouble(self) -> Pieces:
        """Like :meth:`pieces`, but an error ends it with a line that says so."""
        try:
            async for piece in self.pieces(with_unfinished=True):
                yield piece
        except MntrainError as error:
            yield [self.trouble(error)]

    def trouble(self, error: MntrainError) -> LogLine:
        what = "the log ends here" if self._position else "no log"
        return self._said(f"{what}: {error}")

    def _said(self, text: str) -> LogLine:
        return LogLine(node=self._source.node, rank=None, text=text)

    def _of_rank(self, lines: list[LogLine]) -> list[LogLine]:
        return [line for line in lines if self._rank in (None, line.rank)]


class LogSearch:
    """Finds the newest lines that contain a text, in the whole log. When asked again, it reads
    only what was written since.

    Args:
        most: lines to keep of each node.
    """

    def __init__(
        self, sources: Sequence[LogSource], text: str, *, rank: int | None, most: int
    ) -> None:
        self._text = text
        self._readers = [LogReader(source, rank=rank) for source in sources]
        self._found = [deque[LogLine](maxlen=most) for _ in sources]

    async def find(self) -> list[LogLine]:
        """Return the lines found so far. A node that does not answer adds a line that says so."""
        troubles = await asyncio.gather(*map(self._read, self._readers, self._found))
        return [*merge(self._found), *(line for line in troubles if line is not None)]

    async def _read(self, reader: LogReader, found: deque[LogLine]) -> LogLine | None:
        try:
            async for piece in reader.pieces():
                found.extend(line for line in piece if self._text in without_color(line.text))
        except MntrainError as error:
            return reader.trouble(error)
        return None


def merge(by_node: Sequence[Sequence[LogLine]]) -> list[LogLine]:
    """Merge lines of several nodes by time; the order of each node's lines is kept."""
    keyed = [list(zip(_times(lines), lines, strict=True)) for lines in by_node]
    return [line for _, line in heapq.merge(*keyed, key=lambda one: one[0])]


async def merged(streams: Sequence[Pieces]) -> Pieces:
    """Merge whole logs by time, without waiting for any of them to end."""
    held: list[list[LogLine]] = [[] for _ in streams]
    newest = [0.0 for _ in streams]
    is_open = [True for _ in streams]
    while any(is_open):
        # The stream that is furthest behind decides how far the others may go.
        behind = min((i for i, more in enumerate(is_open) if more), key=lambda i: newest[i])
        piece = await anext(streams[behind], None)
        if piece is None:
            is_open[behind] = False
        else:
            held[behind] += _stamped(piece, newest[behind])
            newest[behind] = max([newest[behind], *_times(piece)])
        limit = min((newest[i] for i, more in enumerate(is_open) if more), default=float("inf"))
        ready = [[one for one in lines if not one.time_s or one.time_s < limit] for lines in held]
        held = [lines[len(some) :] for lines, some in zip(held, ready, strict=True)]
        if any(ready):
            yield merge(ready)


def _times(lines: Sequence[LogLine]) -> list[float]:
    """Return times that never decrease: a line without one gets that of the line before."""
    times, last = [], 0.0
    for line in lines:
        last = max(last, line.time_s or 0.0)
        times.append(last)
    return times


def _stamped(lines: Sequence[LogLine], last_s: float) -> list[LogLine]:
    """Give our own lines, which have no time, that of the line before."""
    return [line if line.time_s is not None or not last_s else _at(line, last_s) for line in lines]


def _at(line: LogLine, time_s: float) -> LogLine:
    return LogLine(node=line.node, rank=line.rank, text=line.text, time_s=time_s)
