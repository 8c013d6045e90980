"""Rank charts: throughput, MFU and computing of each rank, and the job's loss. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jupyter_mntrain.metrics.series import EvaluationColumns, JobColumns, JobSeries, RankColumns
from jupyter_mntrain.metrics.summary import JobSummary
from jupyter_mntrain.show import formats
from jupyter_mntrain.show.picture.chart import Band, Chart, Curve, Floats, Level, floats, scale
from jupyter_mntrain.show.picture.theme import MANY_RANKS, Stroke, Theme

Spell = Callable[[float | None], str]
Lines = tuple[tuple[Curve, ...], tuple[Band, ...]]
JOB_WIDTH = 2.4
MOST_SOURCE_CHARACTERS = 60

MOST_ABOVE = 2.0
"""A prediction this many times the highest measured value is not drawn: it is a bad guess."""


def throughput_chart(series: JobSeries, theme: Theme) -> Chart:
    """Return a chart of the job's tokens per second and each rank's pace."""
    curves, bands = _rank_lines(series, "pace_tokens_per_s", formats.rate, theme)
    subtitle = "job, and each rank's pace"
    if len(series.ranks) >= MANY_RANKS:
        subtitle = f"job; pace of {len(series.ranks)} ranks as min, median, max"
    if not curves:
        subtitle = "of the job"
    if series.job.tokens_per_s:
        value = formats.rate(series.summary.tokens_per_s)
        stroke = Stroke(theme.text, width=JOB_WIDTH)
        bands = (*bands, *_extremes(series.job, "tokens_per_s"))
        curves = (_curve(series.job, "tokens_per_s", "job", value, stroke), *curves)
    limits = scale(_heights(curves, bands), floor=0.0)
    levels = _predicted(series.summary, limits[1])
    return _chart(
        series,
        "tokens_per_s",
        key="throughput",
        title="Throughput, tok/s",
        subtitle=subtitle,
        spell=formats.short_count,
        curves=curves,
        bands=bands,
        limits=scale([*_heights(curves, bands), *(np.array([one.y]) for one in levels)], floor=0.0),
        levels=levels,
        height_px=96,
    )


def _predicted(summary: JobSummary, highest: float) -> tuple[Level, ...]:
    """Return the throughput that the plan predicted, unless it would flatten all curves."""
    rate = summary.predicted_tokens_per_s
    if rate is None or rate > MOST_ABOVE * highest:
        return ()
    return (Level(rate, "predicted", formats.rate(rate), is_dashed=True),)


def mfu_chart(series: JobSeries, theme: Theme) -> Chart:
    """Return a chart of each rank's MFU, relative to its own device's peak."""
    curves, bands = _rank_lines(series, "mfu", formats.percent, theme)
    limits = scale(_heights(curves, bands), floor=0.0)
    digits = 0 if limits[1] - limits[0] > 0.05 else 1
    return _chart(
        series,
        "mfu",
        key="mfu",
        title="MFU",
        subtitle=_peak_words(series.summary),
        spell=lambda value: formats.percent(value, digits),
        curves=curves,
        bands=bands,
        limits=limits,
    )


def compute_chart(series: JobSeries, theme: Theme) -> Chart:
    """Return a chart of the share of a step that each rank computes."""
    curves, bands = _rank_lines(series, "compute", formats.percent, theme)
    low, _ = scale(_heights(curves, bands), floor=0.0)
    words, summary = "forward, backward, optimizer: share of a step", series.summary
    if summary.bubble is not None:
        words += f"; bubble {formats.percent(summary.bubble)}"
        if summary.schedule_bubble is not None:
            words += f", the schedule's own {formats.percent(summary.schedule_bubble)}"
    return _chart(
        series,
        "bubble",
        key="compute",
        title="Computing",
        subtitle=words,
        spell=lambda value: formats.percent(value, 0),
        curves=curves,
        bands=bands,
        limits=(min(0.5, low), 1.06),
    )


def loss_chart(series: JobSeries, theme: Theme) -> Chart:
    """Return a chart of the training loss and the loss on held-out text."""
    summary = series.summary
    told: tuple[tuple[JobColumns | EvaluationColumns, str, Any, Stroke], ...] = (
        (series.job, "loss", summary.loss, Stroke(theme.text, width=1.8)),
        (
            series.evaluation,
            "evaluation",
            summary.evaluation_loss,
            Stroke(theme.fill, dash=(6, 4), marker="o"),
        ),
    )
    curves = tuple(
        _curve(columns, "loss", name, formats.loss(last), stroke, is_bad=formats.is_bad(last))
        for columns, name, last, stroke in told
        if columns.loss
    )
    # Training begins high: what happens first belongs into the scale here.
    bands = _extremes(series.job, "loss")
    limits = scale(_heights(curves, bands))
    span = limits[1] - limits[0]
    digits = 0 if span >= 4 else 1 if span >= 0.4 else 2 if span >= 0.04 else 3
    return _chart(
        series,
        "loss",
        key="loss",
        title="Loss",
        alarm=formats.not_finite(summary),
        spell=lambda value: f"{value:.{digits}f}",
        curves=curves,
        bands=bands,
        limits=limits,
        bad_s=tuple(
            float(time_s or 0)
            for columns, *_ in told
            for time_s, loss in zip(columns.time_s, columns.loss, strict=False)
            if formats.is_bad(loss)
        ),
    )


def _chart(series: JobSeries, figure: str, **settings: Any) -> Chart:
    """Return a chart; without curves, it says why the figure is not known."""
    why = series.summary.missing.get(figure, "not reported")
    return Chart(note=None if settings["curves"] else f"{formats.ABSENT}: {why}", **settings)


def _curve(
    columns: RankColumns | JobColumns | EvaluationColumns,
    column: str,
    name: str,
    value: str,
    stroke: Stroke,
    *,
    is_bad: bool = False,
) -> Curve:
    y = floats(getattr(columns, column))
    return Curve(name, value, floats(columns.time_s), y, stroke, is_bad=is_bad)


def _extremes(columns: RankColumns | JobColumns, column: str) -> tuple[Band, ...]:
    """Return a band between the lowest and highest values, where rows stand for several steps."""
    low, high = (floats(of.get(column, ())) for of in (columns.low, columns.high))
    length = min(len(low), len(high))
    times = floats(columns.time_s[:length])
    return (Band(times, low[:length], high[:length]),) if length else ()


def _heights(curves: Sequence[Curve], bands: Sequence[Band]) -> list[Floats]:
    """Return everything that is drawn, for a scale that shows every point."""
    return [
        *(curve.y for curve in curves),
        *(line for band in bands for line in (band.low, band.high)),
    ]


def _rank_lines(series: JobSeries, column: str, spell: Spell, theme: Theme) -> Lines:
    """Return a curve per rank, or for many ranks those of minimum, median and maximum.

    The labels show the recent figures.
    """
    known = [one for one in series.ranks if getattr(one, column)]
    figures = {one.rank: spell(getattr(one, column)) for one in series.summary.ranks}
    if len(known) < MANY_RANKS:
        return tuple(
            _curve(one, column, f"r{one.rank}", figures[one.rank], theme.rank(one.rank))
            for one in known
        ), tuple(band for one in known for band in _extremes(one, column))
    length = min(len(getattr(one, column)) for one in known)
    rows = np.array([floats(getattr(one, column)[:length]) for one in known])
    times = np.max([floats(one.time_s[:length]) for one in known], axis=0)
    recent = series.summary.spreads.get(column)
    curves = [
        Curve(name, spell(value), times, reduce(rows, axis=0), Stroke(theme.ranks[0], width=width))
        for name, value, reduce, width in (
            ("max", recent.high if recent else None, np.max, 0.8),
            ("median", recent.median if recent else None, np.median, 1.8),
            ("min", recent.low if recent else None, np.min, 0.8),
        )
    ]
    for one, row in zip(known, rows, strict=True):
        if one.rank == series.summary.slowest_rank:
            stroke = Stroke(theme.ranks[1], (9, 4), 1.6)
            curves.append(Curve(f"r{one.rank} slowest", figures[one.rank], times, row, stroke))
    return tuple(curves), (Band(times, curves[2].y, curves[0].y),)


def _peak_words(summary: JobSummary) -> str:
    sources = {one.peak_source for one in summary.ranks} - {None}
    if len(sources) == 1 and len(source := str(*sources)) <= MOST_SOURCE_CHARACTERS:
        return f"per rank, of its own peak ({source})"
    return "per rank, of its own peak"
