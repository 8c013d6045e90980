"""Whole logs: all lines of a job from the first to the last, merged by time, a piece at a time.

A log may have 128 MiB on each of many nodes, so no more than one piece of each node is in memory.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import AsyncGenerator, Sequence

from jupyter_mntrain.cluster.history.logs import LogLine, LogSource, TornLines, cut_lines, timed
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.text.foreign import without_color

PIECE_BYTES = tunables.size("cluster.log_piece_bytes")

Pieces = AsyncGenerator[list[LogLine], None]


class LogReader:
    """Reads one node's log in order, and goes on where it was when the log has grown.

    Args:
        rank: only lines of this global rank.
    """

    def __init__(self, source: LogSource, *, rank: int | None = None) -> None:
        self._source = source
        self._rank = rank
        self._position = 0
        self._torn = TornLines(source.node)

    async def pieces(self, *, with_unfinished: bool = False) -> Pieces:
        """New lines, up to the log's size at the start.

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
        """Like :meth:`pieces`; an error becomes a line that says so, and ends it."""
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
    """Finds the newest lines that contain a text, in all of the log. Asked again, it reads only
    what was written since.

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
        """What was found so far. A node that does not answer adds one line that says so."""
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
    """Lines of several nodes in order of time; each node's stay in order."""
    keyed = [list(zip(_times(lines), lines, strict=True)) for lines in by_node]
    return [line for _, line in heapq.merge(*keyed, key=lambda one: one[0])]


async def merged(streams: Sequence[Pieces]) -> Pieces:
    """Merge whole logs by time, without waiting for the end of any."""
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
    """Times that never fall: a line without one has that of the line before."""
    times, last = [], 0.0
    for line in lines:
        last = max(last, line.time_s or 0.0)
        times.append(last)
    return times


def _stamped(lines: Sequence[LogLine], last_s: float) -> list[LogLine]:
    """Give lines of ours, which have no time, that of the line before."""
    return [line if line.time_s is not None or not last_s else _at(line, last_s) for line in lines]


def _at(line: LogLine, time_s: float) -> LogLine:
    return LogLine(node=line.node, rank=line.rank, text=line.text, time_s=time_s)
