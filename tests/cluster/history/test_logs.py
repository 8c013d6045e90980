"""Job logs: the tail of a log of any length, and of any rank."""

from __future__ import annotations

import pytest

from jupyter_mntrain.cluster.history.logs import (
    FIRST_WINDOW_BYTES,
    LogLine,
    LogSource,
    Marks,
    ReadLog,
    TornLines,
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
    found = TornLines("node1").whole([(9, line)])
    assert found == [(9, LogLine(node="node1", rank=rank, text=text))]  # type: ignore[arg-type]


TORN = """\
[node1 rank 0] loss 1 [node1 rank 1] loss[node1 rank 0] of 2
[node1 rank 1]  3
[node1 rank 0]\x20
[node1 rank 0]   0%|          | 0/5 [00:00<?, ?it/s][node1 rank 0] step 1
[node1 rank 0]\x20
[node1 rank 1]\x20
[node1 rank 0]  20%|##        | 1/5 [00:00<00:01]
[node1 rank 0]\x20
[node1 rank 1] 1it [00:01,  3.3s/it][node1 rank 0]\x20
[node1 rank 0]  40%|####      | 2/5 [00:00<00:01,  3.33it/s, loss=1][node1 rank 1]\x20
[node1 rank 1] at the en"""
"""What torchrun makes of two ranks with progress bars, and of ``print(a, b)`` by ``python -u``."""

WHOLE = [
    (0, "loss 1 of 2"),
    (1, "loss 3"),
    (0, "  0%|          | 0/5 [00:00<?, ?it/s]"),
    (0, "step 1"),
    (1, "1it [00:01,  3.3s/it]"),
    (0, " 40%|####      | 2/5 [00:00<00:01,  3.33it/s, loss=1]"),
]


def test_lines_that_labels_have_torn_are_whole() -> None:
    torn = TornLines("node1")
    found = torn.whole(list(enumerate(TORN.splitlines())))
    assert [(line.rank, line.text) for _, line in found] == [*WHOLE, (1, ""), (1, "at the en")]
    assert torn.rest() == []


def test_a_torn_line_is_whole_when_it_is_read_as_it_comes() -> None:
    torn, found = TornLines("node1"), []
    for one in enumerate(TORN.splitlines()):
        found += [(line.rank, line.text) for _, line in torn.whole([one]) if line.text]
    states = [(0, " 20%|##        | 1/5 [00:00<00:01]")]
    assert found == [*WHOLE[:4], *states, *WHOLE[4:], (1, "at the en")]
    torn.whole([(1, "[node1 rank 1] begun [node1 rank 0] other")])
    assert [(line.rank, line.text) for _, line in torn.rest()] == [(1, "begun ")]


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
