"""Flood of samples: read in turns, all of it and in order, while other requests are answered."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_mntrain.agent.attempt.metrics_tail import LINES_PER_TURN, MetricsTail
from jupyter_mntrain.agent.heartbeat import every
from jupyter_mntrain.agent.jobs.book import JobBook
from jupyter_mntrain.agent.jobs.local_job import LocalJob
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.metrics import RankStep, encoder, read_journal_line
from tests.agent.jobs.books import end_all, make_book, polled, start
from tests.waiting import PATIENCE_S

FLOOD = 20 * LINES_PER_TURN


@pytest.fixture
def book(tmp_path: Path) -> Iterator[JobBook]:
    made = make_book(tmp_path / "state", "exec sleep 600")
    yield made
    end_all(made)


def write(directory: Path, rank: int, steps: int) -> None:
    directory.mkdir(exist_ok=True)
    made = (
        RankStep(time_s=float(number), rank=Rank(rank), step=number, step_s=1.0)
        for number in range(1, steps + 1)
    )
    lines = b"".join(encoder.encode(one) + b"\n" for one in made)
    (directory / f"rank-{rank}.ndjson").write_bytes(lines)


def journaled(job: LocalJob) -> list[int]:
    """The steps in the journal."""
    lines = b"".join(block for block, _ in job.samples.journal.read(0)).splitlines()
    bodies = (known.body for line in lines if (known := read_journal_line(line)) is not None)
    return [body.step for body in bodies if isinstance(body, RankStep)]


def test_a_turn_is_bounded_and_no_rank_waits_for_the_flood_of_another(tmp_path: Path) -> None:
    write(tmp_path, 0, FLOOD)
    write(tmp_path, 1, 3)
    tail = MetricsTail(tmp_path, {})
    first = [sample for _, _, sample in tail.read()]
    assert len(first) <= LINES_PER_TURN
    assert [one.step for one in first if one.rank == 1] == [1, 2, 3]
    steps = [one.step for one in first if one.rank == 0]
    while tail.has_more():
        steps += [sample.step for _, _, sample in tail.read()]
    assert steps == list(range(1, FLOOD + 1))


@pytest.mark.anyio
async def test_others_are_answered_while_a_flood_is_read(book: JobBook) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        writer.close()

    job = start(book)
    write(job.attempt.path / "metrics", 0, FLOOD)
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    reading = asyncio.ensure_future(every(0.0, book.poll))
    async with server, asyncio.timeout(PATIENCE_S):
        while not (before := len(journaled(job))):
            await job.samples.journal.grown.wait()
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"hello\n")
        assert await reader.readline() == b"hello\n"
        assert before < len(journaled(job)) < FLOOD
        writer.close()
        while len(journaled(job)) < FLOOD:
            await job.samples.journal.grown.wait()
    reading.cancel()
    assert journaled(job) == list(range(1, FLOOD + 1))


def test_the_end_of_a_job_is_told_after_all_that_it_wrote(book: JobBook) -> None:
    job = start(book)
    write(job.attempt.path / "metrics", 0, FLOOD)
    job.attempt.kill()
    polled(book, lambda: not job.is_active, "the end")
    assert journaled(job) == list(range(1, FLOOD + 1))


def test_a_job_that_is_stopped_after_its_end_is_read_to_its_end(book: JobBook) -> None:
    job = start(book)
    write(job.attempt.path / "metrics", 0, FLOOD)
    job.attempt.kill()
    assert job.attempt.supervisor is not None
    job.attempt.supervisor.wait()
    job.stop("not needed", 0.0)
    polled(book, lambda: not job.is_active, "the end")
    assert journaled(job) == list(range(1, FLOOD + 1))
