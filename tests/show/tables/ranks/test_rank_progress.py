"""Progress of ranks before their first step, as people read it."""

from __future__ import annotations

import dataclasses

import pytest
from rich.console import Console, RenderableType

from jupyter_mntrain.cluster import JobHistory, JobSummary, RankSeries
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.job import JobState
from jupyter_mntrain.model.records.metrics import RankProgress
from jupyter_mntrain.show.picture.header import make_header
from jupyter_mntrain.show.tables.job import progress_line, status_view
from jupyter_mntrain.show.tables.ranks.rank_progress import progress_words, ranks_progress
from tests.standin.jobs import summarize
from tests.standin.training import BEGIN_S, sample_job


def at(
    done: float,
    total: float | None = 5.0,
    *,
    rank: int = 0,
    what: str = "loading the model",
    unit: str = "",
    per_s: float | None = None,
) -> RankProgress:
    return RankProgress(BEGIN_S, Rank(rank), what, done, total, unit, per_s)


def job(*said: RankProgress, state: JobState = "starting") -> tuple[JobHistory, JobSummary]:
    """Four ranks on two nodes that have not stepped yet."""
    history = sample_job({"wopr": 2, "muthur": 2}, steps=0, state=state, started=False).history
    ranks = {one.rank: RankSeries(None, [], None, one) for one in said}
    history = dataclasses.replace(history, ranks=ranks)
    return history, summarize(history, now_s=BEGIN_S)


def text(renderable: RenderableType) -> str:
    console = Console(width=140)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get().replace("\u202f", " ").replace("\xa0", " ")


@pytest.mark.parametrize(
    ("progress", "expected"),
    [
        (at(2), "loading the model, 40 %"),
        (at(9), "loading the model, 100 %"),
        (at(-1), "loading the model, 0 %"),
        (at(0.001), "loading the model, < 1 %"),
        (at(0, None), "loading the model"),
        (at(1234, None, unit="shards"), "loading the model, 1,234 shards"),
        (at(3 * 2**30, None, unit="B"), "loading the model, 3.0 GiB"),
        (
            at(2e9, 7e9, unit="B", per_s=4e7),
            "loading the model, 29 %, 40 MB/s, 2 min 05 s left",
        ),
        (at(3 * 2**30, None, unit="B", per_s=2e6), "loading the model, 3.0 GiB, 2.0 MB/s"),
        (at(4, unit="shards", per_s=0.1), "loading the model, 80 %, 10 s left"),
        (at(4, unit="shards", per_s=1.0), "loading the model, 80 %"),
        (at(2, what="two\nlines"), "two lines, 40 %"),
        (at(2, what="word " * 50), f"{'word ' * 11}word…, 40 %"),
        (at(2, what="x" * 99), f"{'x' * 59}…, 40 %"),
    ],
)
def test_one_rank_s_progress(progress: RankProgress, expected: str) -> None:
    assert text(progress_words(progress)).rstrip() == expected


def test_status_says_who_does_what() -> None:
    history, summary = job(at(2, rank=1), at(0, None, rank=2, what="waiting for the other ranks"))
    shown = text(status_view(summary, history.view))
    assert "rank 1 loading the model, 40 %; rank 2 waiting for the other ranks" in shown
    assert "starting" in shown
    assert "starting, rank 1 loading the model, 40 %" in text(progress_line(summary, BEGIN_S))


def test_ranks_that_do_the_same_are_told_together() -> None:
    ranks = job(*(at(done, rank=rank) for rank, done in enumerate((3, 1, 2, 2))))[1].ranks
    assert text(ranks_progress(ranks) or "").rstrip() == (
        "ranks 0–3 loading the model, 20 % to 60 %"
    )
    ranks = job(at(1, rank=0), at(1, rank=3))[1].ranks
    assert text(ranks_progress(ranks) or "").rstrip() == "ranks 0, 3 loading the model, 20 %"
    ranks = job(at(1, rank=0), at(1, None, rank=1))[1].ranks
    assert ranks_progress(ranks) == "ranks 0–1 loading the model"


def test_what_is_over_is_not_told() -> None:
    assert ranks_progress(job(at(5))[1].ranks) is None
    assert ranks_progress(job(at(1), state="failed")[1].ranks) is None
    assert ranks_progress(job()[1].ranks) is None


def test_the_picture_s_header_says_it_for_each_rank_until_there_are_steps() -> None:
    history, summary = job(at(2, rank=1), at(5, rank=2))
    header = make_header(summary, history.view, now_s=BEGIN_S, program="mntrain", has_steps=False)
    waiting = {who: text(what).strip() for who, what in header.waiting}
    assert waiting["wopr, r1"] == "◔ loading the model, 40 %, for 8 s"
    assert waiting["wopr, r0"] == "◔ loading (pid 1000), for 8 s"
    assert waiting["muthur, r2"] == "◔ loading (pid 1002), for 8 s", "loaded, not introduced"
