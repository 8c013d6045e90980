"""Job logs: the tail of a log of any length, and of any rank."""

from __future__ import annotations

import pytest

from jupyter_mntrain.cluster.history.logs import (
    FIRST_WINDOW_BYTES,
    LogLine,
    LogSource,
    Marks,
    ReadLog,
    parse_line,
    tail_log,
)
from jupyter_mntrain.model.text.log_parts import LogPart

pytestmark = pytest.mark.anyio


def reader(log: bytes, *, limit: int = 1 << 20) -> ReadLog:
    async def read(offset: int, wanted: int) -> LogPart:
        begin = max(0, len(log) + offset) if offset < 0 else offset
        return LogPart(log[begin : begin + min(limit, wanted)], begin, len(log))

    return read


async def no_times(begin: int, end: int) -> Marks:
    return ()


@pytest.mark.parametrize(
    ("line", "rank", "text"),
    [
        ("[node1 rank 3] loss 2.0", 3, "loss 2.0"),
        ("[node1 rank 12]", 12, ""),
        ("[node1 rank 0]   indented", 0, "  indented"),
        ("[node2 rank 0] of another node", None, "[node2 rank 0] of another node"),
        ("W1120 torch elastic says", None, "W1120 torch elastic says"),
        ("", None, ""),
    ],
)
def test_a_line_knows_its_rank(line: str, rank: int | None, text: str) -> None:
    assert parse_line("node1", line) == LogLine(node="node1", rank=rank, text=text)  # type: ignore[arg-type]


async def texts(
    log: bytes, *, rank: int | None = None, tail: int = 3, limit: int = 1 << 20
) -> list[str]:
    source = LogSource("node1", reader(log, limit=limit), no_times)
    lines = await tail_log(source, rank=rank, tail=tail)
    return [line.text for line in lines]


async def test_the_last_lines() -> None:
    assert await texts(b"a\nb\nc\nd\n") == ["b", "c", "d"]
    assert await texts(b"a\nb", tail=200) == ["a", "b"], "a line still being written counts"
    assert await texts(b"") == []
    assert await texts(b"a\n", tail=0) == []


async def test_a_rank_is_found_among_many_lines_of_others() -> None:
    noise = b"[node1 rank 1] " + b"x" * 100 + b"\n"
    log = b"[node1 rank 0] here\n" + noise * 5000
    assert len(log) > 4 * FIRST_WINDOW_BYTES
    assert await texts(log, rank=0) == ["here"]


@pytest.mark.parametrize("limit", [1000, FIRST_WINDOW_BYTES - 1, 1 << 20])
async def test_an_agent_that_gives_less_than_asked_for_is_asked_again(limit: int) -> None:
    log = b"".join(b"[node1 rank 0] line %d\n" % n for n in range(20_000))
    assert await texts(log, tail=2, limit=limit) == ["line 19998", "line 19999"]
    assert len(await texts(log, tail=9000, limit=limit)) == 9000


async def test_a_progress_bar_is_one_line_and_bad_bytes_are_no_error() -> None:
    log = b"[node1 rank 0] 1%\r[node1 rank 0] 50%\r[node1 rank 0] 100%\r\n\xff\xfe\n"
    assert await texts(log) == ["100%", "\ufffd\ufffd"]


async def test_the_window_never_shows_half_a_line() -> None:
    log = (b"y" * (FIRST_WINDOW_BYTES - 10)) + b"\n" + b"z" * 30 + b"\n"
    assert await texts(log, tail=1) == ["z" * 30]
    assert await texts(log, tail=2) == ["y" * (FIRST_WINDOW_BYTES - 10), "z" * 30]
