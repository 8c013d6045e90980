"""Usage answer: a time of this node's history as lines of points, and where there are none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from math import ceil, floor
from typing import NamedTuple

import msgspec

from jupyter_mntrain.agent.machine.usage.usage_series import LEVELS, STATISTICS, UsageSeries
from jupyter_mntrain.metrics.node_history import (
    FIGURES,
    Figure,
    HistoryGap,
    HistoryJob,
    HistoryLine,
    HistoryPart,
)
from jupyter_mntrain.metrics.thinned.blocks import Row
from jupyter_mntrain.metrics.thinned.samples import UNKNOWN
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.records.job import JobRecord

GAP_S = tunables.seconds("history.gap_s")

MOST_JOBS = tunables.count("history.jobs")

POINTS_AT_ONCE = 32

DIGITS: dict[Figure, int] = {"cpu_share": 4, "utilization": 4, "power_w": 1, "temperature_c": 1}
"""Decimals; bytes have none."""


class Span(NamedTuple):
    """What is read of each part: so many points of ``factor`` rows each, from row ``begin`` on."""

    level: int
    begin: int
    factor: int
    points: int

    @property
    def end(self) -> int:
        return self.begin + self.factor * self.points

    @property
    def begin_s(self) -> int:
        return self.begin * LEVELS[self.level].step_s

    @property
    def step_s(self) -> int:
        return self.factor * LEVELS[self.level].step_s


def span_of(since_s: float, until_s: float, now_s: float, points: int) -> Span:
    """The finest rows that reach back to ``since_s``, in at most ``points`` points."""
    reaching = (n for n, level in enumerate(LEVELS) if since_s > now_s - level.kept_s - 1)
    level = next(reaching, len(LEVELS) - 1)
    step_s = LEVELS[level].step_s
    since_s = max(since_s, now_s - LEVELS[level].kept_s)
    begin, end = floor(since_s / step_s), max(floor(since_s / step_s), floor(until_s / step_s)) + 1
    # One more: the first point begins where others of this length do, however the time moves on.
    factor = max(1, ceil((end - begin) / (points - 1)) if end - begin > points else 1)
    begin -= begin % factor
    return Span(level, begin, factor, ceil((end - begin) / factor))


def part_over(part: HistoryPart, series: UsageSeries, span: Span) -> HistoryPart:
    """A part with those of its lines of which anything is known.

    Raises:
        OSError: the disk fails.
    """
    points: list[Row | None] = []
    # In pieces: a day's rows at once would double the agent's memory.
    for first in range(span.begin, span.end, span.factor * POINTS_AT_ONCE):
        last = min(first + span.factor * POINTS_AT_ONCE, span.end)
        rows = series.rows(span.level, first, last)
        for begin in range(first, last, span.factor):
            found = _within(rows, begin, span.factor)
            points.append(series.joined(found) if found else None)
    is_single = span.step_s == 1
    lines = (
        _line(figure, points, 1 + STATISTICS * index, is_single=is_single)
        for index, figure in enumerate(FIGURES[part.kind])
    )
    known = (line for line in lines if any(value is not None for value in line.mean))
    return msgspec.structs.replace(part, lines=tuple(known))


def gaps(node: UsageSeries, span: Span) -> tuple[HistoryGap, ...]:
    """When nothing was taken, between two times when something was.

    Raises:
        OSError: the disk fails.
    """
    step_s, coarsest = LEVELS[span.level].step_s, len(LEVELS) - 1
    rows = node.rows(span.level, span.begin, span.end)
    began = {number: row[0] for number, row in rows.items()}
    if began and span.begin not in began:
        kept = LEVELS[coarsest]
        first = span.begin_s // kept.step_s
        older = node.rows(coarsest, first - kept.rows, first)
        if older:
            began[span.begin - 1] = older[max(older)][0]
    numbers = sorted(began)
    found = []
    for before, after in pairwise(numbers):
        if (after - before - 1) * step_s >= GAP_S:
            found.append(
                HistoryGap(
                    begin_s=float((before + 1) * step_s),
                    end_s=float(after * step_s),
                    state="suspended" if began[before] == began[after] else "off",
                )
            )
    return tuple(found)


def jobs_within(records: Iterable[JobRecord], begin_s: float, end_s: float) -> list[HistoryJob]:
    """The newest jobs that ran here in this time, oldest first."""
    found = []
    for record in records:
        part = record.part
        if part.started_s is None or part.started_s > end_s:
            continue
        if part.ended_s is not None and part.ended_s < begin_s:
            continue
        places = record.attempt.placements
        found.append(
            HistoryJob(
                job_id=record.job_id,
                name=record.label.name or record.spec.name,
                state=part.state,
                ranks=tuple(one.rank for one in part.ranks),
                gpus=next((one.gpus for one in places if one.node_id == part.node_id), ()),
                begin_s=part.started_s,
                end_s=part.ended_s,
            )
        )
    return sorted(found, key=lambda one: one.begin_s)[-MOST_JOBS:]


def _within(rows: Mapping[int, Row], begin: int, factor: int) -> list[Row]:
    return [rows[number] for number in range(begin, begin + factor) if number in rows]


def _line(figure: Figure, points: list[Row | None], at: int, *, is_single: bool) -> HistoryLine:
    digits = DIGITS.get(figure, 0)

    def column(statistic: int) -> tuple[float | None, ...]:
        return tuple(
            None
            if row is None or row[at + statistic] == UNKNOWN
            else round(row[at + statistic], digits)
            for row in points
        )

    mean = tuple(
        None if row is None or not row[at + 1] else round(row[at] / row[at + 1], digits)
        for row in points
    )
    if is_single:
        return HistoryLine(figure=figure, mean=mean)
    return HistoryLine(figure=figure, mean=mean, low=column(2), high=column(3))
