from __future__ import annotations

import asyncio
import errno
import resource
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from jupyter_mntrain.agent.attempt.metrics_tail import READ_BYTES, MetricsTail
from jupyter_mntrain.agent.attempt.supervisor import trim
from jupyter_mntrain.agent.jobs.samples.journal import Journal
from jupyter_mntrain.model.ids import NodeId, Rank
from jupyter_mntrain.model.lifecycle.state import new_part
from jupyter_mntrain.model.records.metrics import (
    PartChange,
    RankProgress,
    RankStep,
    encoder,
    journal_decoder,
    read_journal_line,
)


def step(number: int) -> RankStep:
    return RankStep(time_s=float(number), rank=Rank(0), step=number, step_s=1.0)


def numbers(journal: Journal, since: int = 0) -> list[int]:
    blocks = journal.read(journal.position_after(since))
    lines = b"".join(block for block, _ in blocks).splitlines()
    return [journal_decoder.decode(line).seq for line in lines]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal.ndjson"


def fill(journal: Journal, first: int, last: int) -> None:
    for number in range(first, last + 1):
        journal.append(step(number), attempt=1, source="rank-0.ndjson", offset=100 * number)


def test_lines_are_numbered_from_one_and_read_from_any_number(path):
    journal = Journal(path)
    fill(journal, 1, 5)
    assert numbers(journal) == [1, 2, 3, 4, 5]
    assert numbers(journal, since=3) == [4, 5]
    assert numbers(journal, since=5) == []
    assert numbers(journal, since=99) == []


def test_opening_again_goes_on_with_the_numbers_and_the_sources(path):
    fill(Journal(path), 1, 3)
    again = Journal(path)
    assert again.offsets(1) == {"rank-0.ndjson": 300}
    assert again.offsets(2) == {}
    fill(again, 4, 4)
    assert numbers(again) == [1, 2, 3, 4]


def test_a_torn_last_line_is_cut_off(path):
    fill(Journal(path), 1, 2)
    with path.open("ab") as file:
        file.write(b'{"seq":3,"attempt":1,"body":{"kin')
    again = Journal(path)
    assert numbers(again) == [1, 2]
    fill(again, 3, 3)
    assert numbers(Journal(path)) == [1, 2, 3]


def test_long_journals_are_read_in_blocks_of_whole_lines(path):
    journal = Journal(path)
    fill(journal, 1, 8000)
    blocks = [block for block, _ in journal.read(0)]
    assert len(blocks) > 1
    assert all(block.endswith(b"\n") for block in blocks)
    assert numbers(journal) == list(range(1, 8001))
    for since in (1023, 1024, 1025, 7999):
        assert numbers(journal, since=since) == list(range(since + 1, 8001))


def test_a_disk_that_fills_up_in_the_middle_of_a_line_spoils_nothing(path):
    journal = Journal(path)
    fill(journal, 1, 2)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (journal.size + 10, limits[1]))
    try:
        with pytest.raises(OSError) as caught:
            fill(journal, 3, 3)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.errno == errno.ENOSPC
    assert numbers(journal) == [1, 2]
    fill(journal, 3, 4)
    assert numbers(journal) == numbers(Journal(path)) == [1, 2, 3, 4]


MARK_EVERY = 256

LAST = 2_250
"""Lines of a job that is too long to be kept whole."""


@pytest.fixture
def short(monkeypatch) -> Callable[[Path], Journal]:
    """Journals that are marked more often, and of which less is kept."""
    monkeypatch.setattr("jupyter_mntrain.agent.jobs.samples.journal.MARK_EVERY", MARK_EVERY)
    return partial(Journal, kept_bytes=150_000, head_bytes=50_000, slack_bytes=25_000)


def test_a_long_job_keeps_how_it_began_and_what_was_last(path, short):
    journal = short(path)
    fill(journal, 1, 3 * MARK_EVERY)
    assert numbers(journal) == list(range(1, 3 * MARK_EVERY + 1)), "not long enough to lose any"
    fill(journal, 3 * MARK_EVERY + 1, LAST)
    for one in (journal, short(path)):
        kept = numbers(one)
        gaps = [(a, b) for a, b in pairwise(kept) if b != a + 1]
        assert len(gaps) == 1
        before, after = gaps[0]
        assert kept[0] == 1
        assert kept[-1] == one.last_seq == LAST
        assert before >= MARK_EVERY
        assert after < LAST - 250
        for since in (before - 1, before, before + 1, after - 2, after - 1, after, LAST - 1):
            assert numbers(one, since) == [number for number in kept if number > since]
        assert one.offsets(1) == {"rank-0.ndjson": 100 * LAST}
    assert path.stat().st_size > 100 * LAST
    if path.stat().st_blocks * 512 == path.stat().st_size:
        pytest.skip("this file system cannot punch holes")
    assert path.stat().st_blocks * 512 < 225_000


def test_a_source_that_was_last_heard_of_in_what_was_given_back_is_not_read_again(path, short):
    journal = short(path)
    fill(journal, 1, 2 * MARK_EVERY)
    journal.append(step(1), attempt=1, source="rank-1.ndjson", offset=77)
    fill(journal, 2 * MARK_EVERY + 1, LAST)
    assert short(path).offsets(1) == {"rank-0.ndjson": 100 * LAST, "rank-1.ndjson": 77}


def test_a_crash_before_the_middle_was_given_back_loses_nothing_more(path, short, monkeypatch):
    monkeypatch.setattr("jupyter_mntrain.agent.jobs.samples.journal.give_back", lambda *_: False)
    journal = short(path)
    fill(journal, 1, 2000)
    again = short(path)
    assert numbers(again) == numbers(journal)
    fill(again, 2001, LAST)
    assert numbers(again)[-250:] == list(range(2001, LAST + 1))


def test_a_full_disk_puts_giving_back_off(path, short, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    journal = short(path)
    with monkeypatch.context() as patch:
        patch.setattr("jupyter_mntrain.agent.jobs.samples.journal.write_atomically", full)
        fill(journal, 1, 2000)
    assert numbers(journal) == list(range(1, 2001))
    fill(journal, 2001, 2001)
    assert len(numbers(journal)) < 2001


def test_a_tail_goes_on_behind_what_was_given_back(tmp_path):
    path = tmp_path / "rank-0.ndjson"
    lines = [encoder.encode(step(number)) + b"\n" for number in range(1, 5000)]
    path.write_bytes(b"".join(lines))
    tail = MetricsTail(tmp_path, {})
    if not trim(path, kept_bytes=100_000, slack_bytes=0):
        pytest.skip("this file system cannot punch holes")
    found = []
    while tail.has_more():
        found += [sample.step for _, _, sample in tail.read()]
    assert found[0] == 1
    assert found[-1] == 4999
    assert 500 < len(found) < 4000


@pytest.mark.anyio
async def test_a_waiting_reader_wakes_for_the_next_line(path):
    journal = Journal(path)
    grown = journal.grown
    waiting = asyncio.ensure_future(grown.wait())
    fill(journal, 1, 1)
    assert await asyncio.wait_for(waiting, 5)
    assert not journal.grown.is_set()


def test_the_tail_takes_whole_lines_only_and_goes_on_where_it_stopped(tmp_path):
    file = tmp_path / "rank-0.ndjson"
    one, two = encoder.encode(step(1)) + b"\n", encoder.encode(step(2)) + b"\n"
    file.write_bytes(one + two[:10])
    offsets: dict[str, int] = {}
    tail = MetricsTail(tmp_path, offsets)
    assert [(name, offset, s.step) for name, offset, s in tail.read()] == [
        ("rank-0.ndjson", len(one), 1)
    ]
    file.write_bytes(one + two)
    assert [s.step for _, _, s in MetricsTail(tmp_path, {"rank-0.ndjson": len(one)}).read()] == [2]
    assert [s.step for _, _, s in tail.read()] == [2]
    assert list(tail.read()) == []


def test_a_line_that_is_no_sample_does_not_hide_the_next(tmp_path):
    good = encoder.encode(step(1)) + b"\n"
    (tmp_path / "rank-0.ndjson").write_bytes(b'{"kind":"poem"}\nnot json\n' + good)
    assert [s.step for _, _, s in MetricsTail(tmp_path, {}).read()] == [1]


def test_progress_is_kept_like_a_step(tmp_path):
    half = RankProgress(time_s=1.0, rank=Rank(0), what="reading", done=1, total=2, unit="B")
    (tmp_path / "rank-0.ndjson").write_bytes(encoder.encode(half) + b"\n")
    journal = Journal(tmp_path / "journal.ndjson")
    for source, offset, sample in MetricsTail(tmp_path, {}).read():
        journal.append(sample, attempt=1, source=source, offset=offset)
    assert [read_journal_line(line).body for line, _ in journal.read()] == [half]


def test_a_line_without_an_end_is_passed_over(tmp_path):
    good = encoder.encode(step(1)) + b"\n"
    (tmp_path / "rank-0.ndjson").write_bytes(b"x" * (READ_BYTES + 7) + b"\n" + good)
    tail = MetricsTail(tmp_path, {})
    steps = []
    while tail.has_more():
        steps += [sample.step for _, _, sample in tail.read()]
    assert steps == [1]


def test_a_rank_cannot_speak_for_its_node(tmp_path):
    part = PartChange(time_s=1.0, part=new_part(NodeId("0" * 32), "node1", range(1)))
    (tmp_path / "rank-0.ndjson").write_bytes(encoder.encode(part) + b"\n")
    assert list(MetricsTail(tmp_path, {}).read()) == []


def test_what_could_not_be_kept_is_read_again(tmp_path):
    (tmp_path / "rank-0.ndjson").write_bytes(encoder.encode(step(1)) + b"\n")
    tail = MetricsTail(tmp_path, {})
    for _ in tail.read():
        break  # as when the disk is full
    assert [sample.step for _, _, sample in tail.read()] == [1]


def test_no_directory_yet_is_no_lines(tmp_path):
    assert list(MetricsTail(tmp_path / "metrics", {}).read()) == []
