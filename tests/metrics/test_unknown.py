"""Unknown numbers: n/a with a reason, never 0; and no MFU above 100 %."""

from __future__ import annotations

import io
import json
from math import inf, isfinite, nan
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from jupyter_mntrain.metrics.recent import WARM_UP_STEPS
from jupyter_mntrain.metrics.series import JobSeries
from jupyter_mntrain.metrics.summary import JobSummary
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.metrics import LinkSample, RankStart, Sample
from jupyter_mntrain.model.records.node import Capacity
from jupyter_mntrain.show import formats
from jupyter_mntrain.show.tables.job import headline, link_table, progress_line
from jupyter_mntrain.show.tables.ranks.rank_table import RANK_COLUMNS
from tests.standin.jobs import history, measured_links, step, taken, view

FIGURES = {
    "tok/s": ("tokens_per_s", "tokens"),
    "job MFU": ("mfu", "flops"),
    "bubble": ("bubble", "compute_s"),
    "loss": ("loss", "loss"),
}
"""Headline figures: their field, and what ranks must report for it."""

SECONDS = st.just(0.0) | st.floats(1e-6, 5)
"""No clock is finer."""

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "tokens": st.integers(1, 1000),
    "flops": st.floats(0, 1e6),
    "compute_s": SECONDS,
    "loss": st.floats(),
    "grad_norm": st.floats(),
}


@st.composite
def reported(draw: st.DrawFn) -> tuple[set[str], dict[str, list[Sample]]]:
    """What two ranks on two nodes report in every step, and their samples."""
    told = draw(st.sets(st.sampled_from(sorted(VALUES))))
    peak = draw(st.none() | st.floats(1e-3, 1e6))
    capacity = draw(st.none() | st.floats(1, 1e6))
    steps = draw(st.integers(1, 8))
    samples: dict[str, list[Sample]] = {}
    for rank, node in enumerate(("node1", "node2")):
        start = RankStart(
            time_s=0.0, rank=Rank(rank), local_rank=0, world_size=2, pid=1, host=node,
            peak_flops_per_s=peak, peak_source="measured GEMM", device="RTX",
        )  # fmt: skip
        samples[node] = [start]
        ended_s = 0.0
        for number in range(1, steps + 1):
            fields = {name: draw(VALUES[name]) for name in sorted(told)}
            step_s = draw(SECONDS)
            ended_s += step_s
            times = {"step_s": step_s, "time_s": ended_s}
            one = step(rank, number, **(dict.fromkeys(VALUES) | fields | times))
            size = draw(st.integers(0, 10**6))
            known = Capacity(bytes_per_s=capacity, source="measured") if capacity else None
            links = measured_links(node, samples, known) if known and rank else ()
            link = LinkSample(float(number), "eth1", 1.0, size, size, links=links)
            samples[node] += [one, link]
    return told | ({"peak"} if peak else set()), samples


def shown(job: dict[str, list[Sample]]) -> tuple[JobSummary, JobSeries]:
    builder = taken(history(view("running", "running"), job))
    return builder.summary, builder.whole()


@settings(max_examples=60, deadline=None)
@given(reported())
def test_no_surface_shows_an_mfu_above_its_peak(job: tuple[set[str], dict[str, list[Sample]]]):
    summary, series = shown(job[1])
    drawn = [*series.job.mfu, *(value for one in series.ranks for value in one.mfu)]
    values = [summary.mfu, *(one.mfu for one in summary.ranks), *drawn]
    assert all(value is None or float(value) <= 1.0 for value in values)
    for one in summary.ranks:
        peak_is_told = "peak" in job[0]
        assert (one.peak_source is not None) == peak_is_told


@settings(max_examples=60, deadline=None)
@given(reported())
def test_what_is_not_reported_is_absent_on_every_surface(
    job: tuple[set[str], dict[str, list[Sample]]],
):
    told, samples = job
    summary, _ = shown(samples)
    data = json.loads(json.dumps(msgspec.to_builtins(summary), allow_nan=False))
    cells = {label: text for label, text, _ in headline(summary)}
    for label, (field, needed) in FIGURES.items():
        if needed not in told:
            assert (field in data, cells[label]) == (False, formats.ABSENT), label
            assert summary.missing[field], label
        assert (getattr(summary, field) is None) == (cells[label] == formats.ABSENT), label
    if "tokens" not in told:
        assert f"{formats.ABSENT}{formats.SPACE}tok/s" in progress_line(summary, 0.0)
    for one in summary.ranks:
        texts = {column.title: str(column.cell(one)) for column in RANK_COLUMNS}
        for title, value in (("tok/s", one.tokens_per_s), ("MFU", one.mfu), ("memory", None)):
            assert (value is None) == (texts[title] == formats.ABSENT), title


@settings(max_examples=60, deadline=None)
@given(reported())
def test_a_direction_without_a_capacity_says_so(job: tuple[set[str], dict[str, list[Sample]]]):
    """Only the second node has measured what it sends."""
    summary, _ = shown(job[1])
    console = Console(file=io.StringIO(), width=160, record=True)
    console.print(link_table(summary.links, 0.0))
    rows = console.export_text().splitlines()[2:]
    for link, row in zip(summary.links, rows, strict=False):
        if link.capacity is None:
            assert link.utilization is None
            assert "not measured" in row
        if link.utilization is None:
            assert link.missing
            assert formats.ABSENT in row
        if link.bytes_per_s is None:
            assert row.count(formats.ABSENT) == 2
        is_known = (link.node, link.direction) in {("node2", "sent"), ("node1", "received")}
        assert link.capacity is None or is_known


@pytest.mark.parametrize(
    ("losses", "mean"), [((inf, -inf), nan), ((inf, 1.0), inf), ((1e308, 1.2e308), 1.1e308)]
)
def test_losses_of_any_size_have_a_mean(losses: tuple[float, float], mean: float) -> None:
    """``fmean`` refuses infinities of both signs, and a sum that is too large."""
    samples: dict[str, list[Sample]] = {}
    for rank, (node, loss) in enumerate(zip(("node1", "node2"), losses, strict=True)):
        start = RankStart(
            time_s=0.0, rank=Rank(rank), local_rank=0, world_size=2, pid=1, host=node, device="RTX"
        )
        samples[node] = [start, step(rank, 1, loss=loss), step(rank, 2, loss=loss)]
    summary, _ = shown(samples)
    assert summary.loss is not None
    assert float(summary.loss) == pytest.approx(mean, nan_ok=True)


@settings(max_examples=60, deadline=None)
@given(reported())
def test_nan_and_infinity_are_shown_as_what_they_are_and_counted(
    job: tuple[set[str], dict[str, list[Sample]]],
):
    told, samples = job
    summary, _ = shown(samples)
    steps = [one for one in samples["node1"] if hasattr(one, "grad_norm")]
    [(text, is_bad)] = [(text, bad) for label, text, bad in headline(summary) if label == "loss"]
    if "loss" in told:
        last = [float(one[-2].loss) for one in samples.values()]  # before the last link sample
        is_finite = all(map(isfinite, last))  # what is shown is their mean
        assert is_bad == (not is_finite) == (text in formats.NOT_FINITE.values())
    values = [getattr(one, name) for one in steps for name in ("loss", "grad_norm")]
    if any(value is not None and not isfinite(float(value)) for value in values):
        assert summary.not_finite
        assert summary.first_not_finite_step
    assert WARM_UP_STEPS == 2, "the shortest of these jobs have no recent steps"
