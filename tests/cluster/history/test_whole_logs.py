"""Whole logs: merged by time without holding them, around what was trimmed, and gone on with."""

from __future__ import annotations

import pytest

from jupyter_mntrain.cluster.history.logs import (
    PIECE_BYTES,
    LogLine,
    LogReader,
    LogSearch,
    LogSource,
    Marks,
    merged,
)
from jupyter_mntrain.model.errors import NodeError
from jupyter_mntrain.model.text.log_parts import LogPart

pytestmark = pytest.mark.anyio


class Log:
    """A node's log in memory, one line a second."""

    def __init__(
        self, node: str, *texts: str, first_s: float = 1.0, has_times: bool = True
    ) -> None:
        self.content = b""
        self.marks: list[tuple[int, float]] = []
        self.has_times = has_times
        self.hole: tuple[int, int] = (0, 0)
        self.reads: list[tuple[int, int]] = []
        self.breaks_at: int | None = None
        self.source = LogSource(node, self.read, self.times)
        self.prefix = f"[{node} rank 0] "
        for number, text in enumerate(texts):
            self.write(text, first_s + number)

    def write(self, text: str, time_s: float) -> None:
        self.content += f"{self.prefix}{text}\n".encode()
        self.marks.append((len(self.content), time_s))

    async def read(self, offset: int, limit: int) -> LogPart:
        self.reads.append((offset, limit))
        if self.breaks_at is not None and offset >= self.breaks_at:
            raise NodeError("connection refused", node=self.source.node)
        begin = self.hole[1] if self.hole[0] <= offset < self.hole[1] else offset
        end = begin + limit if begin >= self.hole[1] else min(begin + limit, self.hole[0])
        return LogPart(self.content[begin:end], begin, len(self.content))

    async def times(self, begin: int, end: int) -> Marks:
        return [mark for mark in self.marks if mark[0] > begin] if self.has_times else ()


async def lines_of(*logs: Log) -> list[LogLine]:
    streams = [LogReader(log.source).pieces_or_trouble() for log in logs]
    return [line async for piece in merged(streams) for line in piece]


async def test_lines_of_all_nodes_are_in_order_of_time() -> None:
    first, second = Log("a", "1", "3", "5"), Log("b", "2", "4", first_s=1.5)
    assert [line.text for line in await lines_of(first, second)] == ["1", "2", "3", "4", "5"]
    old = Log("c", "before", "there", "were", "times", has_times=False)
    found = await lines_of(first, old, second)
    assert [line.text for line in found if line.node == "c"] == ["before", "there", "were", "times"]
    assert [line.text for line in found if line.node != "c"] == ["1", "2", "3", "4", "5"]


@pytest.mark.slow
async def test_no_more_than_a_piece_of_each_node_is_held() -> None:
    many = 3 * PIECE_BYTES // 100
    logs = [Log(name, *("x" * 84 for _ in range(many))) for name in "ab"]
    streams = [LogReader(log.source).pieces_or_trouble() for log in logs]
    sizes, count = [], 0
    async for piece in merged(streams):
        count += len(piece)
        sizes.append(len(piece))
        assert [line.time_s for line in piece] == sorted(line.time_s or 0 for line in piece)
    assert count == 2 * many
    assert max(sizes) < 2.5 * PIECE_BYTES / 100


async def test_what_was_trimmed_is_said_where_it_was() -> None:
    log = Log("a", *(f"line {number:04}" for number in range(1000)))
    log.hole = (4096, 16384)
    lines = await lines_of(log)
    (gap,) = [number for number, line in enumerate(lines) if line.rank is None]
    assert "12,288" in lines[gap].text
    length = len("[a rank 0] line 0000\n")
    assert lines[gap - 1].text == f"line {4096 // length - 1:04}"
    assert lines[gap + 1].text == f"line {16384 // length + 1:04}"
    assert lines[-1].text == "line 0999"


async def test_a_node_that_is_lost_midway_says_so_in_its_place() -> None:
    log = Log("a", *("x" * 100 for _ in range(2 * PIECE_BYTES // 100)))
    log.breaks_at = PIECE_BYTES
    lines = await lines_of(log, Log("b", "the end", first_s=1e6))
    assert lines[-1].text == "the end"
    assert "connection refused" in lines[-2].text
    assert len(lines) > PIECE_BYTES // 200


async def test_a_search_goes_on_where_it_was() -> None:
    log = Log("a", "no", "\x1b[1mnee\x1b[0mdle 1", "no")
    search = LogSearch([log.source], "needle", rank=None, most=2)
    assert [line.time_s for line in await search.find()] == [2.0]
    log.content += log.prefix.encode() + b"needle, half wri"
    assert len(await search.find()) == 1, "not yet"
    before = len(log.content)
    log.content += b"tten\n"
    log.marks.append((len(log.content), 9.0))
    log.reads.clear()
    assert [line.text for line in await search.find()][1:] == ["needle, half written"]
    assert max(log.reads)[0] >= before - 40, "nothing is read twice but the unfinished line"
    log.write("needle 3", 10.0)
    assert [line.time_s for line in await search.find()] == [9.0, 10.0], "the newest are kept"
    log.breaks_at = 0
    assert "connection refused" in (await search.find())[-1].text
