"""Downsampled samples: complete, with every extreme, down to single steps; also after a restart."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_mntrain.agent.jobs.samples import archive, samples
from jupyter_mntrain.agent.jobs.samples.archive import NEWEST, Kept, Pyramid, Range, SamplesAnswer
from jupyter_mntrain.agent.jobs.samples.samples import Samples
from jupyter_mntrain.metrics.downsampled.blocks import AT, LINK_RULES, Row, from_bytes
from jupyter_mntrain.metrics.downsampled.samples import (
    BLOCK,
    LINK_BLOCK,
    MOST_TRACES,
    UNKNOWN,
    Blocks,
    NodeSamples,
    RankSamples,
)
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.job import RunningChange
from jupyter_mntrain.model.records.metrics import (
    LinkSample,
    RankEvaluation,
    RankSettings,
    RankStart,
    RankStep,
    RankTrace,
    TracedAction,
)

PEAK, DIP = 700, 901
"""Steps with the longest and the shortest duration."""


def duration_s(number: int) -> float:
    return 9.0 if number == PEAK else 0.25 if number == DIP else 1.0


def step(rank: int, number: int) -> RankStep:
    return RankStep(
        time_s=1000.0 + number,
        rank=Rank(rank),
        step=number,
        step_s=duration_s(number),
        tokens=100,
        loss=math.nan if number == PEAK else 5.0 - number / 1000,
        compute_s=0.2,
        flops=10.0,
        sent_bytes={1 - rank: 8},
        memory_bytes=number,
    )


def fill(made: Samples, first: int, last: int, ranks: tuple[int, ...] = (0, 1)) -> None:
    for number in range(first, last + 1):
        for rank in ranks:
            made.append(
                step(rank, number), attempt=1, source=f"rank-{rank}.ndjson", offset=100 * number
            )


def rows(blocks: Blocks, width: int = len(BLOCK)) -> list[Row]:
    data = from_bytes(blocks.data)
    return [tuple(data[at : at + width]) for at in range(0, len(data), width)]


def whole(made: Samples, points: int) -> NodeSamples:
    assert made.archive is not None
    ranks = list(made.archive.ranks)
    return SamplesAnswer(made.archive, made.journal, ranks=ranks, points=points).read()


def zoom(made: Samples, begin: float, end: float, points: int = 100, rank: int = 0) -> RankSamples:
    assert made.archive is not None
    part = SamplesAnswer(
        made.archive, made.journal, ranks=[Rank(rank)], points=points, range_=Range(begin, end)
    )
    return part.read().ranks[0]


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Samples]:
    one = Samples(tmp_path)
    yield one
    one.close()


def test_all_steps_are_in_blocks_or_told_one_by_one_and_no_extreme_is_lost(made: Samples) -> None:
    fill(made, 1, 1501)
    told = whole(made, points=200)
    assert (told.seq, told.attempt, told.is_whole) == (3002, 1, True)
    for one in told.ranks:
        got = rows(one.blocks)
        assert one.blocks.size == 16
        assert len(got) * 16 == (1501 - NEWEST) // 16 * 16
        assert [s.step for s in one.rest] == list(range(len(got) * 16 + 1, 1502))
        assert [row[AT["step"]] for row in got] == [16.0 * n for n in range(1, len(got) + 1)]
        assert max(row[AT["high_step_s"]] for row in got) == 9.0
        assert min(row[AT["low_step_s"]] for row in got) == 0.25
        assert max(row[AT["high_tokens_per_s"]] for row in got) == 400.0
        assert [row[AT["first_not_finite_step"]] for row in got if row[AT["not_finite"]]] == [PEAK]
        assert sum(math.isnan(row[AT["loss"]]) for row in got) == 1
        assert not any(math.isnan(row[AT["low_loss"]]) for row in got)
        assert one.sent_bytes == {1 - one.rank: 8.0}


def test_a_range_is_told_down_to_single_steps(made: Samples) -> None:
    fill(made, 1, 3000)
    assert [s.step for s in zoom(made, PEAK - 1, PEAK + 1).rest] == [PEAK - 1, PEAK, PEAK + 1]
    assert [s.step for s in zoom(made, 2999, 10**9, rank=1).rest] == [2999, 3000]
    assert [s.step for s in zoom(made, 0, 1).rest] == [1]
    assert zoom(made, 4000, 5000).rest == ()


def test_a_range_of_more_steps_than_points_keeps_its_extremes(made: Samples) -> None:
    fill(made, 1, 3000)
    part = zoom(made, 601, 1000, points=40)
    got = rows(part.blocks)
    assert (part.rest, len(got), part.blocks.size) == ((), 40, 10)
    assert (max(row[AT["high_step_s"]] for row in got), got[-1][AT["step"]]) == (9.0, 1000.0)


def test_a_range_by_time_is_that_of_its_steps(made: Samples) -> None:
    fill(made, 1, 2000)
    assert made.archive is not None
    part = SamplesAnswer(
        made.archive,
        made.journal,
        ranks=[Rank(1)],
        points=50,
        range_=Range(1010.0, 1012.0, "time_s"),
    )
    assert [s.step for s in part.read().ranks[0].rest] == [10, 11, 12]


def test_a_long_range_and_one_that_was_freed_are_told_in_blocks(
    made: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(made, 1, 3000)
    monkeypatch.setattr(archive, "STEPS_READ", 64)
    wide = zoom(made, 1, 2999, points=60)
    assert (wide.rest, wide.blocks.size) == ((), 64)
    assert rows(wide.blocks)[-1][AT["step"]] == 3000.0
    monkeypatch.setattr(made.journal, "has", lambda *_: False)
    freed = zoom(made, 401, 408)
    assert [row[AT["step"]] for row in rows(freed.blocks)] == [404.0, 408.0]


@pytest.mark.parametrize("every", [50, 10**6])
def test_a_restarted_agent_goes_on_and_reads_little_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    monkeypatch.setattr(samples, "LINES_PER_SAVE", every)
    for name in "ab":
        (tmp_path / name).mkdir()
    first, steady = Samples(tmp_path / "a"), Samples(tmp_path / "b")
    begin = RankStart(time_s=0.0, rank=Rank(0), local_rank=0, world_size=2, pid=1, host="x")
    for one in (first, steady):
        one.append(begin, attempt=1)
        one.append(RankEvaluation(time_s=1.0, rank=Rank(0), step=0, loss=5.0), attempt=1)
        fill(one, 1, 777)
    # Not closed: the agent was killed.
    again = Samples(tmp_path / "a")
    index = again.journal.index
    assert (index is not None and again.journal.last_seq - index.seq < 50) == (every == 50)
    assert again.journal.offsets(1) == {"rank-0.ndjson": 77700, "rank-1.ndjson": 77700}
    for one in (again, steady):
        fill(one, 778, 1500)
    assert whole(again, points=100) == whole(steady, points=100)
    for one in (again, first, steady):
        one.close()


@pytest.mark.parametrize("damage", ["saved.msgpack", "rank-0.1", "rank-1.2"])
def test_a_damaged_archive_is_made_again(tmp_path: Path, damage: str) -> None:
    first = Samples(tmp_path)
    fill(first, 1, 600)
    before = whole(first, points=100)
    first.close()
    (tmp_path / "samples" / damage).write_bytes(b"\x93")
    again = Samples(tmp_path)
    assert whole(again, points=100) == before
    again.close()


def test_a_long_job_whose_archive_is_lost_is_left_to_its_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Samples(tmp_path)
    fill(first, 1, 600)
    first.close()
    (tmp_path / "samples" / "saved.msgpack").unlink()
    monkeypatch.setattr(samples, "MOST_REPLAYED", 500)
    again = Samples(tmp_path)
    assert again.archive is None
    fill(again, 601, 602)
    assert again.journal.last_seq == 1204
    again.close()


def test_a_new_attempt_begins_afresh(made: Samples) -> None:
    fill(made, 1, 600)
    made.append(step(0, 1), attempt=2)
    told = whole(made, points=100)
    assert (told.attempt, [one.rank for one in told.ranks]) == (2, [0])
    assert [s.step for s in told.ranks[0].rest] == [1]


def test_a_rank_that_stopped_long_ago_loses_nothing(made: Samples) -> None:
    fill(made, 1, 300)
    fill(made, 301, 3000, ranks=(1,))
    lagging = whole(made, points=100).ranks[0]
    assert lagging.blocks.size * len(rows(lagging.blocks)) + len(lagging.rest) == 300
    assert lagging.rest[-1].step == 300


@pytest.mark.parametrize("points", [1, 3, 12])
@pytest.mark.parametrize("count", [0, 1, 5, 64, 65, 66, 67, 68, 69, 255, 323, 1000])
def test_every_sample_of_an_interface_is_told_once(made: Samples, count: int, points: int) -> None:
    for number in range(count):
        body = LinkSample(
            time_s=float(number), interface="eth1", interval_s=1.0, sent_bytes=2, received_bytes=1
        )
        made.append(body, attempt=1)
    got = rows(whole(made, points).links, len(LINK_BLOCK))
    assert sum(row[1] for row in got) == count
    assert sum(row[2] for row in got) == 2 * count
    assert [row[0] for row in got] == sorted({row[0] for row in got})


def test_files_are_bounded_and_the_coarse_ones_have_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "MOST_BLOCKS", 10)
    made = Pyramid(tmp_path / "links", Kept(), LINK_RULES)
    for number in range(163):
        made.add((float(number), 1.0, 2.0, UNKNOWN))
    assert [made.is_full(level) for level in made.levels()] == [False, True, True]
    assert made.blocks(0) == 10
    kept = made.save()
    assert (tmp_path / "links.1").stat().st_size == 10 * 4 * 8
    for one in (made, Pyramid(tmp_path / "links", kept, LINK_RULES)):
        told = [*one.rows(1, 0, one.blocks(1)), *one.remainder(1)]
        assert sum(row[1] for row in told) == 163


def test_the_line_of_losses_is_of_all_attempts_and_survives_the_agent(tmp_path: Path) -> None:
    made = Samples(tmp_path)
    start = RankStart(
        time_s=1.0, rank=Rank(0), local_rank=0, world_size=1, pid=1, host="node1", total_steps=60
    )
    made.append(start, attempt=1)
    fill(made, 1, 20, ranks=(0,))
    made.close()
    again = Samples(tmp_path)
    for number in range(11, 31):
        again.append(step(0, number), attempt=2)
    line = again.loss_line
    change = RunningChange("a", 30, 30.0, total_steps=90)
    again.append(RankSettings(time_s=30.0, rank=Rank(0), change=change), attempt=2)
    changed = again.loss_line
    again.close()
    assert line is not None
    assert changed is not None
    assert (line.begin, line.total_steps, len(line.lows)) == (1, 60, 30)
    assert changed.total_steps == 90, "somebody wants more"
    assert (line.first, line.last) == (4.999, 4.97)


def test_the_newest_recorded_steps_are_told_also_after_a_restart(tmp_path: Path) -> None:
    def trace(number: int) -> RankTrace:
        actions = (TracedAction("F", 0.125, 0.5, 0, 1), TracedAction("SEND_F", 0.5, 0.5, 0, 1, 1))
        return RankTrace(
            time_s=number, rank=Rank(0), step=number, begin_s=0.0, step_s=1.0, actions=actions
        )

    made = Samples(tmp_path)
    fill(made, 1, 5)
    for number in range(1, MOST_TRACES + 3):
        made.append(trace(number), attempt=1)
    kept = tuple(trace(number) for number in range(3, MOST_TRACES + 3))
    assert whole(made, 100).ranks[0].traces == kept
    assert zoom(made, 1, 3).traces == (), "who asks for a range of steps has them"
    made.close()
    assert whole(Samples(tmp_path), 100).ranks[0].traces == kept
