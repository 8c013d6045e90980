"""Long runs: a driver that begins late, or sees all of it, shows the same, and stays bounded."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_mntrain.agent.jobs.samples.archive import SamplesAnswer
from jupyter_mntrain.agent.jobs.samples.samples import Samples
from jupyter_mntrain.metrics.downsampled import attempt_lines
from jupyter_mntrain.metrics.downsampled.samples import NodeSamples
from jupyter_mntrain.metrics.history import HistoryBuilder
from jupyter_mntrain.metrics.series import JobSeries
from jupyter_mntrain.metrics.series_builder import SeriesBuilder
from jupyter_mntrain.model.ids import NodeId, Rank
from jupyter_mntrain.model.records.job import JobView
from jupyter_mntrain.model.records.metrics import JournalLine, RankStart, RankStep, Sample
from tests.standin.jobs import JOB, place, view

STEPS = 2600
PEAK, DIP, BAD = 701, 902, 1203
"""Steps with the longest and the shortest duration, and with a loss that is NaN."""

LOOPBACK = tuple(place(f"node{n + 1}", n, n, address="127.0.0.1") for n in range(2))


def start(rank: int) -> RankStart:
    return RankStart(
        time_s=0.0,
        rank=Rank(rank),
        local_rank=0,
        world_size=2,
        pid=1,
        host="x",
        stages=(rank,),
        peak_flops_per_s=100.0,
        microbatches=3,
    )


def step(rank: int, number: int) -> RankStep:
    seconds = 9.0 if number == PEAK else 0.5 if number == DIP else 2.0
    return RankStep(
        time_s=2.0 * number + 7.0 * (number >= PEAK) - 1.5 * (number >= DIP),
        rank=Rank(rank),
        step=number,
        step_s=seconds,
        tokens=100,
        loss=None if rank == 0 else float("nan") if number == BAD else 7.0 - number / 1000,
        compute_s=0.4,
        flops=10.0 + (number == DIP),
        sent_bytes={1 - rank: 1000},
        received_bytes={1 - rank: 1000},
        memory_bytes=100 + (number == PEAK),
    )


def node(name: str) -> tuple[NodeId, int]:
    return NodeId(f"id-of-{name}"), int(name[-1]) - 1


def lines(rank: int, steps: int = STEPS) -> list[JournalLine]:
    bodies: list[Sample] = [start(rank), *(step(rank, number) for number in range(1, steps + 1))]
    return [JournalLine(seq=seq, attempt=1, body=body) for seq, body in enumerate(bodies, 1)]


@pytest.fixture
def job() -> JobView:
    return view("running", "running", places=LOOPBACK)


def read(builder: HistoryBuilder, name: str, since: int, until: int) -> None:
    node_id, rank = node(name)
    for line in lines(rank)[since:until]:
        assert builder.add(node_id, name, line)


def answer(directory: Path, name: str, until: int, points: int) -> NodeSamples:
    """What the agent answers that has read so many lines."""
    directory.mkdir()
    made = Samples(directory)
    for line in lines(node(name)[1])[:until]:
        made.append(line.body, attempt=1)
    assert made.archive is not None
    told = SamplesAnswer(made.archive, made.journal, ranks=made.archive.ranks, points=points)
    made.close()
    return told.read()


def series(builder: HistoryBuilder, job: JobView, points: int) -> JobSeries:
    made = SeriesBuilder(JOB, "s")
    made.extend(builder.snapshot(job, is_complete=False), 1e5)
    return made.whole(points)


def check(told: JobSeries, points: int) -> None:
    drawn = told.job
    assert 0 < len(drawn.step) <= points
    assert (drawn.step[0], drawn.step[-1]) != (None, None)
    assert drawn.step[-1] == STEPS
    assert (min(drawn.low["step_s"]), max(drawn.high["step_s"])) == (0.5, 9.0)  # type: ignore[type-var]
    assert max(drawn.high["tokens_per_s"]) == 200.0  # type: ignore[type-var]
    assert max(drawn.high["loss"]) == 6.999  # type: ignore[type-var]
    assert "NaN" in drawn.loss
    for one in told.ranks:
        assert max(one.high["step_s"]) == 9.0  # type: ignore[type-var]
        assert max(one.memory_bytes) >= 100  # type: ignore[type-var]
        assert len(one.low["compute"]) <= len(one.compute)
    assert [len(link.sent) > 0 for link in told.links] == [True, True]
    summary = told.summary
    assert summary.step == STEPS
    assert (summary.first_loss, summary.loss) == (6.999, 4.4)
    assert (summary.not_finite, summary.first_not_finite_step) == (1, BAD)
    assert [one.memory_bytes for one in summary.ranks] == [101, 101]


@pytest.mark.parametrize("points", [50, 1200])
def test_a_late_reader_and_one_from_the_start_tell_the_same(
    tmp_path: Path, job: JobView, points: int
) -> None:
    late, whole = HistoryBuilder(), HistoryBuilder()
    for index, name in enumerate(("node1", "node2")):
        node_id, _ = node(name)
        # One node answers earlier than the other; then both are read on.
        until = STEPS - 1500 + 900 * index
        told = answer(tmp_path / name, name, until, points=600)
        assert late.load(node_id, name, told)
        assert not late.load(node_id, name, told)
        assert late.last_seq(node_id) == until
        read(late, name, until, STEPS + 1)
        read(whole, name, 0, STEPS + 1)
    got, expected = (series(builder, job, points) for builder in (late, whole))
    check(got, points)
    check(expected, points)
    for figure in (
        "tokens_per_s",
        "mfu",
        "step_s",
        "bubble",
        "busiest_bytes_per_s",
        "slowest_rank",
    ):
        assert getattr(got.summary, figure) == pytest.approx(getattr(expected.summary, figure))


def test_no_step_is_lost_or_taken_twice_where_blocks_end(tmp_path: Path, job: JobView) -> None:
    builder = HistoryBuilder()
    for name in ("node1", "node2"):
        builder.load(node(name)[0], name, answer(tmp_path / name, name, 2001, points=600))
        read(builder, name, 2001, STEPS + 1)
    for one in builder.snapshot(job, is_complete=False).ranks.values():
        assert one.count == STEPS
        assert [s.step for s in one.steps] == list(range(one.first + 1, STEPS + 1))
        assert one.blocks[-1][1] == one.first


def test_a_driver_stays_bounded(job: JobView, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt_lines, "MOST_BLOCKS", 512)
    monkeypatch.setattr(attempt_lines, "MOST_STEPS", 128)
    builder, made = HistoryBuilder(), SeriesBuilder(JOB, "s")
    for begin in range(0, STEPS + 1, 300):
        for name in ("node1", "node2"):
            read(builder, name, begin, min(begin + 300, STEPS + 1))
        made.extend(builder.snapshot(job, is_complete=False), 1e5)
    for one in builder.snapshot(job, is_complete=False).ranks.values():
        assert len(one.blocks) <= 4 * 512
        assert len(one.steps) <= 2 * 128 + one.blocks.size
        assert one.count == STEPS
    check(made.whole(400), 400)
    check(series(builder, job, 400), 400)


def test_a_node_that_lags_far_behind_holds_up_the_job_and_loses_nothing(
    job: JobView, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt_lines, "MOST_STEPS", 128)
    builder, made = HistoryBuilder(), SeriesBuilder(JOB, "s")
    read(builder, "node1", 0, STEPS + 1)
    read(builder, "node2", 0, 11)
    made.extend(builder.snapshot(job, is_complete=False), 1e5)
    assert made.summary.step == 10
    read(builder, "node2", 11, STEPS + 1)
    made.extend(builder.snapshot(job, is_complete=False), 1e5)
    check(made.whole(300), 300)
