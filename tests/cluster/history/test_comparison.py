"""Comparison of job handles: figures in their order, and what differs."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_mntrain.cluster import JobHistory
from jupyter_mntrain.cluster.history.comparison import compare_jobs
from jupyter_mntrain.metrics.ranking import Ranking, rank_jobs
from jupyter_mntrain.metrics.summary import JobSummary, Spread, Window
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.show.tables.comparison import ranking_line
from tests.standin.job_handle import StandInJob
from tests.standin.training import Sample, sample_job
from tests.wording import says


def job(steps: int, priority: int) -> StandInJob:
    sample = sample_job({"wopr": 1}, steps=steps, state="succeeded")
    spec = msgspec.structs.replace(sample.history.view.spec, priority=priority)
    history = JobHistory(
        view=msgspec.structs.replace(sample.history.view, spec=spec),
        ranks=sample.history.ranks,
        links=sample.history.links,
        is_complete=True,
    )
    return StandInJob(Sample(history, sample.now_s))


def test_figures_and_values_are_in_the_order_of_the_jobs():
    compared = compare_jobs([job(steps=60, priority=7), job(steps=40, priority=0)])
    assert [one.step for one in compared.summaries] == [60, 40]
    (differing,) = compared.settings.differing
    assert differing.name == "launch.priority"
    assert [one and one.value for one in differing.values] == [7, 0]


def told(
    job_id: str,
    rate: float | None,
    *,
    counts_padding: bool | None = None,
    steps: int = 5,
    spread: Spread | None = None,
) -> JobSummary:
    whole = Window(2.0 * steps, steps, rate and 2 * steps * rate, rate)
    return JobSummary(
        job_id=JobId(job_id),
        name="x",
        state="succeeded",
        step=5,
        tokens_per_s=9 * (rate or 0),
        whole=whole,
        step_spread=spread,
        counts_padding=counts_padding,
        missing={} if rate else {"tokens_per_s": "no tokens"},
    )


def ranked(*jobs: JobSummary) -> Ranking:
    return rank_jobs({one.job_id: one for one in jobs})


def test_jobs_are_ranked_by_all_that_they_counted_over_all_of_their_time() -> None:
    ranking = ranked(told("a", 100.0), told("b", 560.0), told("c", 280.0))
    assert [(one.job_id, one.times) for one in ranking.jobs] == [("b", 1.0), ("c", 2.0), ("a", 5.6)]
    said = ranking_line(ranking).plain
    assert says("By tok/s over the whole job b is the fastest: 2.0", said)
    alike = ranking_line(ranked(told("a", 100.0), told("b", 101.0))).plain
    assert says("they are alike", alike)


def test_how_many_times_as_fast_has_the_range_that_the_steps_give_it() -> None:
    wide, narrow = Spread(0.5, 1.0, 3.5), Spread(1.9, 2.0, 2.1)
    few = ranked(told("a", 100.0, spread=wide), told("b", 110.0, spread=wide))
    assert few.jobs[1].low < 1 < few.jobs[1].high
    assert says("they cannot be ranked", ranking_line(few).plain)
    many = ranked(
        told("a", 100.0, spread=wide, steps=10_000), told("b", 110.0, spread=wide, steps=10_000)
    )
    assert many.jobs[1].low == pytest.approx(1.1, rel=0.02)
    assert says("b is the fastest: 1.1", ranking_line(many).plain)
    unsure = ranked(told("a", 100.0, spread=wide), told("b", 400.0, spread=narrow))
    # 2 standard errors: 2 · (3.0 / 2.563) / √5 / 2.0 of 4.
    assert unsure.jobs[1].high == pytest.approx(4 * (1 + 0.523 + 0.0017), rel=0.01)
    assert says("1.9 to 6.1", ranking_line(unsure).plain)


def test_what_is_not_comparable_is_not_ranked_and_says_why() -> None:
    padded = ranked(told("a", 1.0, counts_padding=True), told("b", 2.0, counts_padding=False))
    assert padded.jobs == ()
    assert says("tokens are counted differently", ranking_line(padded).plain)
    none = ranking_line(ranked(told("a", 1.0), told("b", None))).plain
    assert says("b has no tok/s: no tokens", none)
