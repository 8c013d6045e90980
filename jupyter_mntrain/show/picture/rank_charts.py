"""Rank charts: throughput, MFU and computing per rank, and the job's loss. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from jupyter_mntrain.cluster import JobHistory, JobSummary
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.show import formats
from jupyter_mntrain.show.picture.chart import Band, Chart, Curve, scale, thin
from jupyter_mntrain.show.picture.columns import (
    Columns,
    EvaluationColumns,
    Floats,
    RankColumns,
    floats,
)
from jupyter_mntrain.show.picture.theme import MANY_RANKS, Stroke, Theme
from jupyter_mntrain.telemetry import formulas

Spell = Callable[[float], str]
JOB_WIDTH = 2.4


def throughput_chart(columns: Columns, history: JobHistory, theme: Theme) -> Chart:
    """The job's tokens per second, and each rank's pace: tokens over its own compute time."""
    job = _job_curve(columns, history, theme)
    curves, bands = _rank_lines(columns, _paces(columns, history), formats.short_count, theme)
    curves = (*([job] if job else []), *curves)
    subtitle = "job, and each rank's pace while computing"
    if len(columns.ranks) >= MANY_RANKS:
        subtitle = f"job; pace of {len(columns.ranks)} ranks as min, median, max"
    if not any(np.isfinite(curve.y).any() for curve in curves[1:]):
        curves, bands, subtitle = curves[:1], (), "of the job"
    return Chart(
        key="throughput",
        title="Throughput, tok/s",
        subtitle=subtitle,
        spell=formats.short_count,
        curves=curves,
        bands=bands,
        limits=scale(*(c.y for c in curves), *_edges(bands), floor=0.0),
        note=None if curves else "no tokens reported: recorder.step(tokens=…) would show them",
        height_px=96,
    )


def mfu_chart(columns: Columns, history: JobHistory, theme: Theme) -> Chart:
    """Model FLOPs utilization of each rank over its own device's peak."""
    curves, bands = _rank_lines(
        columns, {r: floats(c.mfu) for r, c in columns.ranks.items()}, formats.percent, theme
    )
    return Chart(
        key="mfu",
        title="MFU",
        subtitle=_peak_words(history),
        spell=lambda value: formats.percent(value, 0 if _span(curves) > 0.05 else 1),
        curves=curves,
        bands=bands,
        limits=scale(*(c.y for c in curves), *_edges(bands), floor=0.0),
        note=None if curves else _no_mfu(history),
    )


def compute_chart(
    columns: Columns, history: JobHistory, summary: JobSummary, theme: Theme
) -> Chart:
    """Share of a step each rank spends in forward and backward; the rest is the bubble."""
    curves, bands = _rank_lines(
        columns,
        {r: floats(c.compute_share) for r, c in columns.ranks.items()},
        formats.percent,
        theme,
    )
    low, _ = scale(*(c.y for c in curves), *_edges(bands), floor=0.0)
    return Chart(
        key="compute",
        title="Computing",
        subtitle=_bubble_words(history, summary),
        spell=lambda value: formats.percent(value, 0),
        curves=curves,
        bands=bands,
        limits=(min(0.5, low), 1.06),
        note=None if curves else "not reported: recorder.step(compute_s=…) would show it",
    )


def loss_chart(columns: Columns, theme: Theme) -> Chart:
    """The loss that the lowest reporting rank writes, and what it evaluated; all see the same."""
    one = next((c for c in columns.ranks.values() if np.isfinite(floats(c.loss)).any()), None)
    if one is None:
        note = "no loss reported: recorder.step(loss=…) would show it"
        return Chart(key="loss", title="Loss", subtitle="", spell=formats.loss, note=note)
    y = floats(one.loss)
    known = np.isfinite(y)
    x, y = thin(floats(one.time_s)[known], y[known])
    curves = [Curve("loss", formats.loss(float(y[-1])), x, y, Stroke(theme.strong, width=1.8))]
    if columns.evaluation.loss:
        curves.append(_evaluation_curve(columns.evaluation, theme))
    # Training begins high: what happens first belongs into the scale here.
    y = np.concatenate([curve.y for curve in curves])
    room = max((y.max() - y.min()) * 0.12, 1e-3)
    limits = (float(y.min() - room), float(y.max() + room))
    return Chart(
        key="loss",
        title="Loss",
        subtitle="",
        spell=_loss_tick(limits),
        curves=tuple(curves),
        limits=limits,
    )


def _evaluation_curve(columns: EvaluationColumns, theme: Theme) -> Curve:
    x, y = thin(floats(columns.time_s), floats(columns.loss))
    stroke = Stroke(theme.fill, dash=(6, 4), marker="o")
    return Curve("evaluation", formats.loss(float(y[-1])), x, y, stroke)


def _loss_tick(limits: tuple[float, float]) -> Spell:
    span = limits[1] - limits[0]
    digits = 0 if span >= 4 else 1 if span >= 0.4 else 2 if span >= 0.04 else 3
    return lambda value: f"{value:.{digits}f}"


def _job_curve(columns: Columns, history: JobHistory, theme: Theme) -> Curve | None:
    """Ranks that hold the same stages are replicas: their tokens add up. Other ranks of the
    pipeline see the same tokens again.
    """
    groups = _replicas(columns, history)
    replicas = [columns.ranks[rank] for rank in groups[0]] if groups else []
    length = min((one.steps for one in replicas), default=0)
    if not length:
        return None
    tokens = np.sum([floats(one.tokens, length) for one in replicas], axis=0)
    seconds = np.max([floats(one.step_s, length) for one in replicas], axis=0)
    times = np.max([floats(one.time_s, length) for one in replicas], axis=0)
    rate = tokens / np.where(seconds > 0, seconds, np.nan)
    if not np.isfinite(rate).any():
        return None
    x, y = thin(times, rate)
    last = formats.short_count(_last(y))
    return Curve("job", last, x, y, Stroke(theme.strong, width=JOB_WIDTH))


def _replicas(columns: Columns, history: JobHistory) -> list[list[Rank]]:
    """Ranks that hold the same stages; each group sees all of the job's tokens."""
    by_stages: dict[tuple[int, ...], list[Rank]] = {}
    for rank in columns.ranks:
        start = history.ranks[rank].start
        by_stages.setdefault(start.stages if start else (), []).append(rank)
    return list(by_stages.values())


def _paces(columns: Columns, history: JobHistory) -> dict[Rank, Floats]:
    """What the whole job would do at each rank's pace: comparable with the job's own line."""
    return {
        rank: floats(columns.ranks[rank].pace) * len(group)
        for group in _replicas(columns, history)
        for rank in group
    }


def _rank_lines(
    columns: Columns, lines: dict[Rank, Floats], spell: Spell, theme: Theme
) -> tuple[tuple[Curve, ...], tuple[Band, ...]]:
    known = {rank: line for rank, line in sorted(lines.items()) if np.isfinite(line).any()}
    if len(known) >= MANY_RANKS:
        return _band_lines(columns, known, spell, theme)
    curves = []
    for rank, line in known.items():
        x, y = thin(floats(columns.ranks[rank].time_s), line)
        curves.append(Curve(f"r{rank}", spell(_last(y)), x, y, theme.rank(rank)))
    return tuple(curves), ()


def _band_lines(
    columns: Columns, known: dict[Rank, Floats], spell: Spell, theme: Theme
) -> tuple[tuple[Curve, ...], tuple[Band, ...]]:
    length = min(len(line) for line in known.values())
    if not length:
        return (), ()
    rows = np.array([line[:length] for line in known.values()])
    times = np.max([floats(columns.ranks[rank].time_s, length) for rank in known], axis=0)
    slowest = _slowest({rank: columns.ranks[rank] for rank in known}, length)
    faint, middle = Stroke(theme.ranks[0], width=0.8), Stroke(theme.ranks[0], width=1.8)
    edges = {"max": rows.max(axis=0), "median": np.median(rows, axis=0), "min": rows.min(axis=0)}
    curves = []
    for name, line in edges.items():
        x, y = thin(times, line)
        curves.append(Curve(name, spell(_last(y)), x, y, middle if name == "median" else faint))
    x, y = thin(times, rows[list(known).index(slowest)])
    picked = Stroke(theme.ranks[1], (9, 4), 1.6)
    curves.append(Curve(f"r{slowest} slowest", spell(_last(y)), x, y, picked))
    low, high = thin(times, edges["min"])[1], thin(times, edges["max"])[1]
    return tuple(curves), (Band(x, low, high),)


def _slowest(known: dict[Rank, RankColumns], length: int, recent: int = 50) -> Rank:
    """Lowest median pace of late; without paces the longest steps."""

    def pace(rank: Rank) -> float:
        paces = floats(known[rank].pace, length)[-recent:]
        if np.isfinite(paces).any():
            return float(np.nanmedian(paces))
        return -float(np.median(floats(known[rank].step_s, length)[-recent:]))

    return min(known, key=pace)


def _edges(bands: Sequence[Band]) -> list[Floats]:
    return [edge for band in bands for edge in (band.low, band.high)]


def _span(curves: Sequence[Curve]) -> float:
    low, high = scale(*(curve.y for curve in curves))
    return high - low


def _last(y: Floats) -> float:
    known = y[np.isfinite(y)]
    return float(known[-1]) if known.size else float("nan")


def _peak_words(history: JobHistory) -> str:
    sources = {s.start.peak_source for s in history.ranks.values() if s.start} - {None}
    if len(sources) == 1 and len(source := str(*sources)) <= 60:
        return f"per rank, of its own peak ({source})"
    return "per rank, of its own peak"


def _no_mfu(history: JobHistory) -> str:
    starts = [series.start for series in history.ranks.values() if series.start]
    unknown = sorted({start.device for start in starts if start.peak_flops_per_s is None})
    if unknown:
        return f"n/a: the peak of {', '.join(unknown)} is not known"
    return "n/a: the ranks report no FLOPs"


def _bubble_words(history: JobHistory, summary: JobSummary) -> str:
    words = "share of a step in forward and backward"
    if summary.bubble is not None:
        words += f"; bubble {formats.percent(summary.bubble)}"
    starts = [series.start for series in history.ranks.values() if series.start]
    start = next((s for s in starts if s.microbatches and s.stages), None)
    if start is not None and start.microbatches and len(starts) > 1:
        ranks = len({s.stages for s in starts})
        ideal = formulas.ideal_bubble(ranks, start.microbatches, len(start.stages))
        words += f", the schedule's own {formats.percent(ideal)}"
    return words
