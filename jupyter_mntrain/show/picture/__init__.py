"""Job picture: the job's state, and charts of throughput, MFU, links, computing and loss.

It draws a :class:`jupyter_mntrain.metrics.series.JobSeries` and derives nothing. It imports
matplotlib, which takes half a second: import it in the function that draws.
"""

from __future__ import annotations

from jupyter_mntrain.metrics.series import JobSeries
from jupyter_mntrain.model.records.job import TERMINAL, JobView
from jupyter_mntrain.show.picture.chart import Chart
from jupyter_mntrain.show.picture.header import make_header
from jupyter_mntrain.show.picture.link_chart import link_chart
from jupyter_mntrain.show.picture.painter import Marks, Painter
from jupyter_mntrain.show.picture.rank_charts import (
    compute_chart,
    loss_chart,
    mfu_chart,
    throughput_chart,
)
from jupyter_mntrain.show.picture.theme import THEMES, WIDTH_PX

__all__ = ["WIDTH_PX", "Picture"]

LEAST_SPAN_S = 10.0
"""Shortest time axis: one point alone would have no width."""


class Picture:
    """Draws frames of one job. Not thread-safe.

    Args:
        program: ``mntrain`` or ``%mntrain``, for hints.
        theme: ``auto`` (transparent, fits light and dark), ``light`` or ``dark``.
    """

    def __init__(self, *, program: str, theme: str = "auto") -> None:
        self._program = program
        self._theme = THEMES[theme]
        self.painter = Painter(self._theme)

    def draw(self, series: JobSeries, view: JobView, *, now_s: float, note: str = "") -> bytes:
        """Draw the job as a PNG that is :data:`WIDTH_PX` page pixels wide.

        Args:
            now_s: Unix time; the end of the time axis while the job runs.
            note: small text below everything.
        """
        has_steps = any(rank.time_s for rank in series.ranks)
        header = make_header(
            series.summary, view, now_s=now_s, program=self._program, has_steps=has_steps
        )
        end = _end_s(series, view, now_s)
        charts = self._charts(series, end, now_s) if has_steps else []
        begin = _begin_s(series, end)
        mark = view.problem.time_s if view.problem is not None else None
        if mark is not None and mark > end and mark - end < LEAST_SPAN_S:
            end = mark
        span = (begin, max(end, begin + LEAST_SPAN_S))
        marks = Marks(failed_s=mark, events=series.summary.marks)
        return self.painter.paint(header, charts, span, marks, note, samples=series.texts)

    def _charts(self, series: JobSeries, end_s: float, now_s: float) -> list[Chart]:
        links = link_chart(series, self._theme, program=self._program, end_s=end_s, now_s=now_s)
        return [
            throughput_chart(series, self._theme),
            mfu_chart(series, self._theme),
            *([links] if links else []),
            compute_chart(series, self._theme),
            loss_chart(series, self._theme),
        ]


def _end_s(series: JobSeries, view: JobView, now_s: float) -> float:
    """Return the end of the time axis: now, or the end of a job that is over."""
    steps = [float(rank.time_s[-1] or 0) for rank in series.ranks if rank.time_s]
    if view.state not in TERMINAL:
        return max(now_s, *steps) if steps else now_s
    # Clocks of two nodes may differ: no step is cut off.
    return max([*steps, *(part.ended_s for part in view.parts if part.ended_s)], default=now_s)


def _begin_s(series: JobSeries, end: float) -> float:
    # A step's time is that of its end.
    firsts = [
        float(rank.time_s[0] or end) - float(rank.step_s[0] or 0)
        for rank in series.ranks
        if rank.time_s
    ]
    firsts += [float(time_s or end) for time_s in series.evaluation.time_s[:1]]
    return min(firsts, default=end)
