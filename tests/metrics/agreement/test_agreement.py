"""Agreement: all surfaces show the same figures of a job, digit for digit."""

from __future__ import annotations

import re
from dataclasses import replace
from math import nan
from statistics import median
from typing import get_args

import msgspec
import numpy as np
import pytest
from matplotlib.figure import Figure

from jupyter_mntrain.metrics.history import JobHistory
from jupyter_mntrain.model.records.metrics import RankStep, encoder, sample_decoder
from jupyter_mntrain.recipe.schedules import ScheduleName
from jupyter_mntrain.show import formats
from jupyter_mntrain.show.tables.job import progress_line
from jupyter_mntrain.show.tables.ranks.rank_groups import MOST_RANKS
from jupyter_mntrain.telemetry import formulas
from tests.metrics.agreement.recordings import NAMES, load
from tests.metrics.agreement.surfaces import (
    LABELS,
    chart_labels,
    drawn,
    encoded,
    headline,
    pictured,
    printed,
    rank_figures,
    rows,
    saved,
    spelled_headline,
    spelled_ranks,
    time_left,
)
from tests.searches import runs_all
from tests.standin.training import SCENES, Sample, sample_job
from tests.wording import says

pytestmark = pytest.mark.slow

SCHEDULES = get_args(ScheduleName)


def changed(sample: Sample, start: dict | None = None, step=lambda one: one) -> Sample:
    """With other starts and steps."""
    history = sample.history
    ranks = {
        rank: replace(
            one,
            start=msgspec.structs.replace(one.start, **(start or {})),
            steps=[step(each) for each in one.steps],
        )
        for rank, one in history.ranks.items()
    }
    return Sample(JobHistory(history.view, ranks, history.links, history.is_complete), sample.now_s)


def nan_at_the_end(step: RankStep) -> RankStep:
    return msgspec.structs.replace(step, loss=nan) if step.step >= 58 else step


DRAWN = [name for name in NAMES if runs_all() or name not in SCHEDULES or name == "zbv"]
"""A schedule changes no surface but by its name, and the V has two stages on a rank."""

CASES = {
    **{name: SCENES[name] for name in ("two", "three", "six", "many", "failed", "no-capacity")},
    "NaN": lambda: changed(sample_job({"wopr": 1, "muthur": 1}), step=nan_at_the_end),
    **{f"recorded {name}": lambda name=name: load(name).sample for name in DRAWN},
    "one step": lambda: sample_job({"wopr": 1, "muthur": 1}, steps=1),
}


@pytest.mark.parametrize("name", list(CASES))
def test_stdout_picture_notebook_and_json_say_the_same(name: str) -> None:
    sample = CASES[name]()
    text, told, (notebook, figure) = printed(sample), encoded(sample), saved(sample)
    said = headline(text)
    assert set(LABELS) <= set(said)
    assert headline(notebook) == said
    assert spelled_headline(told) == said
    assert pictured(figure) == said
    in_picture = " ".join(one.get_text() for one in figure.texts)
    low, high = (told.get(f"remaining_{end}_s") for end in ("low", "high"))
    spelled = formats.between(low, high) if low is not None else None
    line = progress_line(sample.summary, sample.now_s)
    assert {time_left(one) for one in (text, line)} == {spelled}
    assert {time_left(one) for one in (notebook, in_picture)} == {None}, "these are kept"
    ranks = rank_figures(text)
    assert len(ranks) == len(told["ranks"])
    assert spelled_ranks(told) == ranks
    in_notebook = {row["rank"]: row["MFU"] for row in rows(notebook, "rank")}
    assert in_notebook.items() <= {rank: row["MFU"] for rank, row in ranks.items()}.items()
    assert len(in_notebook) == len(ranks) or len(ranks) > MOST_RANKS, "of many, what stands out"
    for title, column in (
        ("Throughput, tok/s", "pace"),
        ("MFU", "MFU"),
        ("Computing", "computing"),
    ):
        figures = {rank: row[column] for rank, row in ranks.items()}
        check_labels(chart_labels(figure, title), figures)
    drawn = chart_labels(figure, "Throughput, tok/s")
    assert drawn["job"] == said["tok/s"]
    if "predicted" in drawn:
        assert drawn["predicted"] == formats.rate(told["predicted_tokens_per_s"])
    check_frames(figure)


def check_labels(labels: dict[str, str], printed: dict[str, str]) -> None:
    """Next to the lines stand the ranks' figures; of many ranks, the least and the most of them."""
    for name in labels.keys() - {"job", "median", "max", "min", "predicted"}:
        assert labels[name] == printed[name.split()[0]]
    if "max" in labels:
        ordered = sorted(printed.values(), key=lambda one: float(re.sub(r"[^0-9.]", "", one)))
        assert (labels["min"], labels["max"]) == (ordered[0], ordered[-1])


def check_frames(figure: Figure) -> None:
    """No line of a chart is cut off at its frame: above, below, or at the right."""
    lines = [(axes, line) for axes in figure.axes for line in axes.lines]
    curves = [one for one in lines if len(np.atleast_1d(one[1].get_xdata())) != 2]
    assert curves
    for axes, line in curves:
        (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
        x, y = np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)
        if line.get_transform() == axes.get_xaxis_transform():
            continue  # the mark of a value that has no height
        shown = np.isfinite(y) & (x >= left)
        assert (x[shown] <= right).all()
        assert (y[shown] < high).all()
        assert ((y[shown] > low) | (y[shown] == 0)).all()


@pytest.mark.parametrize("name", ["replicas", "many", "1f1b"])
def test_the_job_is_never_faster_than_its_slowest_rank(name: str) -> None:
    series = load(name).sample.series
    slowest = min(float(one.pace_tokens_per_s or 0) for one in series.summary.ranks)
    assert 0 < (series.summary.tokens_per_s or 0) < slowest
    for rank in series.ranks:
        for job, pace in zip(series.job.tokens_per_s, rank.pace_tokens_per_s, strict=True):
            assert float(job or 0) < float(pace or 0)


@pytest.mark.parametrize("name", ["replicas", "1f1b", "zbv"])
def test_the_tokens_of_a_job_are_those_of_its_batch(name: str) -> None:
    sample = load(name).sample
    starts = [one.start for one in sample.history.ranks.values() if one.start is not None]
    assert starts
    batch = starts[0].tokens_per_step
    job = sample.series.job
    made = [
        float(rate or 0) * float(step or 0)
        for rate, step in zip(job.tokens_per_s, job.step_s, strict=True)
    ]
    assert made == pytest.approx([batch] * len(made), rel=1e-3)


def test_figures_of_a_job_that_slowed_and_ended_are_those_counted_over_all_of_it() -> None:
    """Counted from what the ranks wrote, by hand: tokens of the steps, over the time they took."""
    sample = load("slowed").sample
    steps = list(zip(*(one.steps for one in sample.history.ranks.values()), strict=True))
    ended = [max(one.time_s for one in each) for each in steps]
    begun_s = ended[0] - max(one.step_s for one in steps[0])
    tok_per_s = formats.rate(sum(each[0].tokens or 0 for each in steps) / (ended[-1] - begun_s))
    step_s = formats.seconds(median(max(one.step_s for one in each) for each in steps))
    for said in (
        headline(printed(sample)),
        headline(saved(sample)[0]),
        pictured(saved(sample)[1]),
        spelled_headline(encoded(sample)),
    ):
        assert (said["tok/s"], said["step time"]) == (tok_per_s, step_s)


def test_a_job_that_goes_on_without_a_node_has_all_its_figures() -> None:
    sample = load("shrunk").sample
    assert len(sample.history.view.spec.participants) == 3
    assert len(sample.summary.ranks) == 2
    assert sample.summary.missing == {}
    assert "2 ranks on 2 nodes" in " ".join(text.get_text() for text in drawn(sample).texts)


def test_recordings_are_of_what_they_are_called() -> None:
    summaries = {name: load(name).sample.summary for name in NAMES}
    assert set(SCHEDULES) < set(NAMES)
    for schedule in SCHEDULES:
        ranks = load(schedule).sample.history.ranks.values()
        assert {one.start.schedule for one in ranks if one.start} == {schedule}
    assert summaries["restarted"].attempt == summaries["shrunk"].attempt == 2
    assert summaries["stalled"].stall is not None
    assert summaries["diverged"].not_finite == 5
    assert len({rank.device for rank in summaries["mixed"].ranks}) == 2
    assert len(summaries["replicas"].ranks) == 4
    assert summaries["evaluated"].evaluation_loss is not None


@pytest.mark.parametrize("schedule", ["zbv", "dualpipev", "interleaved-zero-bubble"])
def test_the_schedules_own_bubble_is_that_of_the_jobs_schedule(schedule: str) -> None:
    sample = changed(sample_job({"wopr": 1, "muthur": 1}), {"schedule": schedule})
    own = formulas.ideal_bubble(2, 8, 1, schedule=schedule)
    assert sample.summary.schedule_bubble == pytest.approx(own, rel=1e-6)


def test_nan_is_carried_shown_in_red_and_counted() -> None:
    sample = CASES["NaN"]()
    assert (sample.summary.loss, sample.summary.not_finite) == ("NaN", 3)
    assert sample.summary.first_not_finite_step == 58
    assert headline(printed(sample))["loss"] == "NaN"
    line = encoder.encode(next(iter(sample.history.ranks.values())).steps[-1])
    assert sample_decoder.decode(line).loss == "NaN"
    assert "NaN or infinite loss or gradient in 3 steps" in progress_line(sample.summary, 0.0)
    words = {text.get_text(): text.get_color() for text in drawn(sample).texts}
    assert words["NaN"] == "#d83a3a"
    assert words["NaN or infinite loss or gradient in 3 steps, first in step 58"] == "#d83a3a"


def test_mfu_is_never_over_100_percent_and_says_what_peak_it_is_of() -> None:
    sample = changed(sample_job({"wopr": 1, "muthur": 1}), {"peak_flops_per_s": 1e12})
    assert 0 < sample.summary.mfu <= 1
    assert all(value <= 1 for rank in sample.series.ranks for value in rank.mfu[2:])
    assert all(says("under load", rank.peak_source) for rank in sample.summary.ranks)


def test_a_loopback_job_that_reports_no_payload_has_no_rate_and_says_why() -> None:
    def silent(step: RankStep) -> RankStep:
        return msgspec.structs.replace(step, sent_bytes={}, received_bytes={})

    sample = changed(sample_job({"wopr": 1, "muthur": 1}, loopback=True), step=silent)
    assert {link.bytes_per_s for link in sample.summary.links} == {None}
    assert all("do not report" in link.missing for link in sample.summary.links)
    assert headline(printed(sample))["busiest link"] == "n/a"
