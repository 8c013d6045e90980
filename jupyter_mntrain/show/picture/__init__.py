"""Picture of a job: its state, then throughput, MFU, links, computing and loss over time.

Imports matplotlib, which takes a while: import it where a picture is drawn, never at the top.
"""

from __future__ import annotations

from jupyter_mntrain.cluster import JobHistory, JobSummary
from jupyter_mntrain.model.records.job import TERMINAL
from jupyter_mntrain.show.picture.chart import Chart
from jupyter_mntrain.show.picture.columns import Columns
from jupyter_mntrain.show.picture.header import make_header
from jupyter_mntrain.show.picture.link_chart import link_chart
from jupyter_mntrain.show.picture.painter import Painter, newest
from jupyter_mntrain.show.picture.rank_charts import (
    compute_chart,
    loss_chart,
    mfu_chart,
    throughput_chart,
)
from jupyter_mntrain.show.picture.theme import THEMES, WIDTH_PX

__all__ = ["WIDTH_PX", "Picture"]

LEAST_SPAN_S = 10.0
"""A time axis of one point would have no width."""


class Picture:
    """Draws one job again and again. For one thread at a time.

    Args:
        program: ``mntrain`` or ``%mntrain``, for hints.
        theme: ``auto`` (transparent, fits light and dark), ``light`` or ``dark``.
    """

    def __init__(self, *, program: str, theme: str = "auto") -> None:
        self._program = program
        self._theme = THEMES[theme]
        self._columns = Columns()
        self._painter = Painter(self._theme)

    @property
    def painter(self) -> Painter:
        return self._painter

    def draw(
        self, history: JobHistory, summary: JobSummary, *, now_s: float, note: str = ""
    ) -> bytes:
        """The job as PNG, :data:`WIDTH_PX` pixels of the page wide.

        Args:
            now_s: Unix time; the end of the time axis while the job runs.
            note: small, below everything.
        """
        self._columns.extend(history)
        has_steps = self._columns.has_steps
        header = make_header(
            history, summary, now_s=now_s, program=self._program, has_steps=has_steps
        )
        charts = self._charts(history, summary) if has_steps else []
        # Charts freeze where the data ends once a job is over.
        last = newest(charts)
        is_over = history.view.state in TERMINAL
        end = last if last is not None and is_over else max(now_s, last or now_s)
        begin = self._begin_s(end)
        mark = summary.cause.time_s if summary.cause is not None else None
        if mark is not None and mark > end and mark - end < LEAST_SPAN_S:
            end = mark
        return self._painter.paint(
            header,
            charts,
            (begin, max(end, begin + LEAST_SPAN_S)),
            mark,
            note,
            samples=history.texts,
        )

    def _charts(self, history: JobHistory, summary: JobSummary) -> list[Chart]:
        columns, theme = self._columns, self._theme
        links = link_chart(columns, history, summary, theme, program=self._program)
        return [
            throughput_chart(columns, history, theme),
            mfu_chart(columns, history, theme),
            *([links] if links else []),
            compute_chart(columns, history, summary, theme),
            loss_chart(columns, theme),
        ]

    def _begin_s(self, end: float) -> float:
        ranks = self._columns.ranks.values()
        # A step's time is that of its end.
        firsts = [one.time_s[0] - one.step_s[0] for one in ranks if one.steps]
        firsts += self._columns.evaluation.time_s[:1]
        return min(firsts, default=end)
