"""Rank charts: throughput, MFU and computing per rank, and the job's loss. Pure."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from jupyter_mntrain.metrics.series import JobSeries, RankColumns
from jupyter_mntrain.metrics.summary import JobSummary
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.show import formats
from jupyter_mntrain.show.picture.chart import Band, Chart, Curve, floats, scale
from jupyter_mntrain.show.picture.theme import MANY_RANKS, Stroke, Theme

Spell = Callable[[float | None], str]
Lines = tuple[tuple[Curve, ...], tuple[Band, ...]]
Figures = dict[Rank, float | None]
JOB_WIDTH = 2.4
MOST_SOURCE_CHARACTERS = 60


def throughput_chart(series: JobSeries, theme: Theme) -> Chart:
    """The job's tokens per second, and each rank's pace."""
    curves, bands = _rank_lines(series, "pace_tokens_per_s", formats.rate, theme)
    subtitle = "job, and each rank's pace"
    if len(series.ranks) >= MANY_RANKS:
        subtitle = f"job; pace of {len(series.ranks)} ranks as min, median, max"
    if not curves:
        subtitle = "of the job"
    if series.job.tokens_per_s:
        job = Curve(
            "job",
            formats.rate(series.summary.tokens_per_s),
            floats(series.job.time_s),
            floats(series.job.tokens_per_s),
            Stroke(theme.text, width=JOB_WIDTH),
        )
        curves = (job, *curves)
    return Chart(
        key="throughput",
        title="Throughput, tok/s",
        subtitle=subtitle,
        spell=formats.short_count,
        curves=curves,
        bands=bands,
        limits=scale([curve.y for curve in curves], floor=0.0),
        note=None if curves else _missing(series, "tokens_per_s"),
        height_px=96,
    )


def mfu_chart(series: JobSeries, theme: Theme) -> Chart:
    """Model FLOPs utilization of each rank over its own device's peak."""
    curves, bands = _rank_lines(series, "mfu", formats.percent, theme)
    limits = scale([curve.y for curve in curves], floor=0.0)
    digits = 0 if limits[1] - limits[0] > 0.05 else 1
    return Chart(
        key="mfu",
        title="MFU",
        subtitle=_peak_words(series.summary),
        spell=lambda value: formats.percent(value, digits),
        curves=curves,
        bands=bands,
        limits=limits,
        note=None if curves else _missing(series, "mfu"),
    )


def compute_chart(series: JobSeries, theme: Theme) -> Chart:
    """Share of a step that each rank computes."""
    curves, bands = _rank_lines(series, "compute", formats.percent, theme)
    low, _ = scale([curve.y for curve in curves], floor=0.0)
    summary = series.summary
    words = "forward, backward, optimizer: share of a step"
    if summary.bubble is not None:
        words += f"; bubble {formats.percent(summary.bubble)}"
        if summary.schedule_bubble is not None:
            words += f", the schedule's own {formats.percent(summary.schedule_bubble)}"
    return Chart(
        key="compute",
        title="Computing",
        subtitle=words,
        spell=lambda value: formats.percent(value, 0),
        curves=curves,
        bands=bands,
        limits=(min(0.5, low), 1.06),
        note=None if curves else _missing(series, "bubble"),
    )


def loss_chart(series: JobSeries, theme: Theme) -> Chart:
    """The loss, and what it was on text that is not trained on."""
    job, evaluation, summary = series.job, series.evaluation, series.summary
    curves = []
    if job.loss:
        stroke = Stroke(theme.text, width=1.8)
        value, is_bad = formats.loss(summary.loss), formats.is_bad(summary.loss)
        x, y = floats(job.time_s), floats(job.loss)
        curves.append(Curve("loss", value, x, y, stroke, is_bad=is_bad))
    if evaluation.loss:
        value, is_bad = (
            formats.loss(summary.evaluation_loss),
            formats.is_bad(summary.evaluation_loss),
        )
        x, y = floats(evaluation.time_s), floats(evaluation.loss)
        stroke = Stroke(theme.fill, dash=(6, 4), marker="o")
        curves.append(Curve("evaluation", value, x, y, stroke, is_bad=is_bad))
    # Training begins high: what happens first belongs into the scale here.
    limits = scale([curve.y for curve in curves])
    told = [*zip(job.time_s, job.loss, strict=False)]
    told += [*zip(evaluation.time_s, evaluation.loss, strict=False)]
    return Chart(
        key="loss",
        title="Loss",
        alarm=formats.not_finite(summary),
        spell=_loss_tick(limits),
        curves=tuple(curves),
        limits=limits,
        bad_s=tuple(float(time_s or 0) for time_s, loss in told if formats.is_bad(loss)),
        note=None if curves else _missing(series, "loss"),
    )


def _loss_tick(limits: tuple[float, float]) -> Callable[[float], str]:
    span = limits[1] - limits[0]
    digits = 0 if span >= 4 else 1 if span >= 0.4 else 2 if span >= 0.04 else 3
    return lambda value: f"{value:.{digits}f}"


def _rank_lines(series: JobSeries, name: str, spell: Spell, theme: Theme) -> Lines:
    """A line per rank, or for many a band and the slowest rank. Labels say the recent figures."""
    known = {one.rank: one for one in series.ranks if getattr(one, name)}
    figures: Figures = {one.rank: getattr(one, name) for one in series.summary.ranks}
    if len(known) >= MANY_RANKS:
        return _band_lines(series, known, figures, name, spell, theme)
    return tuple(
        Curve(
            f"r{rank}",
            spell(figures.get(rank)),
            floats(one.time_s),
            floats(getattr(one, name)),
            theme.rank(rank),
        )
        for rank, one in known.items()
    ), ()


def _band_lines(
    series: JobSeries,
    known: dict[Rank, RankColumns],
    figures: Figures,
    name: str,
    spell: Spell,
    theme: Theme,
) -> Lines:
    length = min(len(getattr(one, name)) for one in known.values())
    rows = np.array([floats(getattr(one, name)[:length]) for one in known.values()])
    times = np.max([floats(one.time_s[:length]) for one in known.values()], axis=0)
    recent = series.summary.spreads.get(name)
    faint, middle = Stroke(theme.ranks[0], width=0.8), Stroke(theme.ranks[0], width=1.8)
    low, median, high = (recent.low, recent.median, recent.high) if recent else (None,) * 3
    curves = [
        Curve("max", spell(high), times, np.max(rows, axis=0), faint),
        Curve("median", spell(median), times, np.median(rows, axis=0), middle),
        Curve("min", spell(low), times, np.min(rows, axis=0), faint),
    ]
    slowest = series.summary.slowest_rank
    if slowest in known:
        line = rows[list(known).index(slowest)]
        picked = Stroke(theme.ranks[1], (9, 4), 1.6)
        value = spell(figures.get(slowest))
        curves.append(Curve(f"r{slowest} slowest", value, times, line, picked))
    return tuple(curves), (Band(times, curves[2].y, curves[0].y),)


def _peak_words(summary: JobSummary) -> str:
    sources = {one.peak_source for one in summary.ranks} - {None}
    if len(sources) == 1 and len(source := str(*sources)) <= MOST_SOURCE_CHARACTERS:
        return f"per rank, of its own peak ({source})"
    return "per rank, of its own peak"


def _missing(series: JobSeries, name: str) -> str:
    return f"{formats.ABSENT}: {series.summary.missing.get(name, 'not reported')}"
