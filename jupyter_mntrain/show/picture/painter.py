"""Painter: draws header and charts on a ``Figure``; never pyplot, so any thread may draw.

All lengths are pixels of the page, from the top left corner.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, DateFormatter
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from jupyter_mntrain.metrics.summary import WrittenText
from jupyter_mntrain.show.picture.canvas import FONT, POINTS_PER_PX, Canvas, line_settings
from jupyter_mntrain.show.picture.chart import Chart, Curve
from jupyter_mntrain.show.picture.header import Header
from jupyter_mntrain.show.picture.samples import (
    NewestText,
    block_height,
    lay_out,
    newest_texts,
    paint_samples,
)
from jupyter_mntrain.show.picture.spread import spread
from jupyter_mntrain.show.picture.theme import (
    EDGE_PX,
    LABEL_GAP_PX,
    LARGE,
    LEFT_PX,
    MEDIUM,
    RIGHT_PX,
    SMALL,
    TITLE,
    WIDTH_PX,
    Stroke,
    Theme,
)

SECONDS_PER_DAY = 86_400.0
"""matplotlib's dates are days since the epoch."""

SHORT_RUN_S = 600.0
"""Below, the clock on the axis needs seconds."""

TITLE_PX = 26
GAP_PX = 8
FOOT_PX = 26
NOTE_PX = 20
LEADER_PX = 8
DASH_PX = 16


class Painter:
    """Paints one frame after the other; axes and texts are kept while their shape is the same."""

    def __init__(self, theme: Theme) -> None:
        self._theme = theme
        self._shape: tuple[object, ...] | None = None
        self._canvas = Canvas()
        self._axes: dict[str, Axes] = {}
        self._shown: list[WrittenText] = []
        self._samples: list[NewestText] = []

    @property
    def figure(self) -> Figure:
        return self._canvas.figure

    def paint(
        self,
        header: Header,
        charts: list[Chart],
        span: tuple[float, float],
        mark_s: float | None,
        note: str = "",
        samples: Sequence[WrittenText] = (),
    ) -> bytes:
        """One frame as PNG.

        Args:
            span: Unix times at both ends of the time axis.
            mark_s: when the job failed.
            note: small, below everything.
            samples: below the charts.
        """
        heights = [_height(chart) for chart in charts]
        top = self._header_height(header)
        height = top + sum(h + TITLE_PX + GAP_PX for h in heights) + (FOOT_PX if charts else 0)
        below = height
        height += block_height(self._lay_out(samples))
        height += NOTE_PX if note else 0
        shape = (height, tuple((chart.key, h) for chart, h in zip(charts, heights, strict=True)))
        if shape != self._shape:
            self._reshape(charts, heights, top, height)
            self._shape = shape
        self._canvas.clear()
        self._paint_header(header)
        for chart in charts:
            self._paint_chart(chart, span, mark_s, is_last=chart is charts[-1])
        paint_samples(self._canvas, self._theme, self._samples, below)
        self._canvas.write(EDGE_PX, height - NOTE_PX / 2, note, SMALL, self._theme.secondary)
        return self._canvas.png()

    def _lay_out(self, samples: Sequence[WrittenText]) -> list[NewestText]:
        """Only when there are others: measuring takes longer than drawing."""
        shown = newest_texts(samples)
        if shown != self._shown:
            self._shown, self._samples = shown, [lay_out(self._canvas, one) for one in shown]
        return self._samples

    def _reshape(self, charts: list[Chart], heights: list[int], top: float, height: float) -> None:
        self._canvas.resize(height, self._theme.background)
        self._axes = {}
        plot_width = WIDTH_PX - LEFT_PX - RIGHT_PX
        at = top
        for chart, chart_height in zip(charts, heights, strict=True):
            at += TITLE_PX
            bottom = 1 - (at + chart_height) / height
            box = (LEFT_PX / WIDTH_PX, bottom, plot_width / WIDTH_PX, chart_height / height)
            axes = self._canvas.figure.add_axes(box)
            axes.patch.set_visible(False)
            for spine in axes.spines.values():
                spine.set_visible(False)
            self._axes[chart.key] = axes
            at += chart_height + GAP_PX

    # header

    def _header_height(self, header: Header) -> float:
        height = 34.0 if header.progress is None else 48.0
        height += 22 if header.facts else 0
        height += 20 * len(self._cause_lines(header)) + 36 if header.cause else 0
        height += 50 if header.numbers else 0
        height += 20 * len(header.waiting) + 10 if header.waiting else 0
        return height + (24 if header.footer else 0)

    def _paint_header(self, header: Header) -> None:
        theme = self._theme
        y = 20 + (self._paint_cause(header) if header.cause else 0.0)
        color = theme.bad if header.state == "failed" else theme.fill
        x = self._canvas.write(EDGE_PX, y, header.icon, LARGE, color, bold=True) + 6
        x = self._canvas.write(x, y, header.state, LARGE, theme.text) + 10
        x = self._canvas.write(x, y, header.name, TITLE, theme.text, bold=True) + 10
        self._canvas.write(x, y, header.identity, SMALL, theme.secondary)
        if header.progress is not None:
            y += 18
            self._bar(y, header.progress)
        if header.facts:
            y += 20
            x = EDGE_PX
            for number, fact in enumerate(header.facts):
                x = self._canvas.write(x, y, fact, MEDIUM, theme.text, bold=number == 0) + 24
        if header.numbers:
            y += 24
            for number, (label, value, is_bad) in enumerate(header.numbers):
                x = EDGE_PX + number * (WIDTH_PX - 2 * EDGE_PX) / len(header.numbers)
                self._canvas.write(x, y, label, SMALL, theme.secondary)
                color = theme.bad if is_bad else theme.text
                self._canvas.write(x, y + 20, value, TITLE, color, bold=True)
            y += 20
        y += 10
        for who, what in header.waiting:
            y += 20
            self._canvas.write(EDGE_PX, y, who, MEDIUM, theme.text, bold=True)
            self._canvas.write(EDGE_PX + 180, y, what, MEDIUM, theme.text)
        if header.footer:
            self._canvas.write(EDGE_PX, y + 24, header.footer, SMALL, theme.secondary)

    def _paint_cause(self, header: Header) -> float:
        theme, lines = self._theme, self._cause_lines(header)
        bottom = 20.0 * len(lines) + 36
        self._canvas.patch(EDGE_PX / 2, 4, WIDTH_PX - EDGE_PX, bottom - 8, edge=theme.bad)
        y = 2.0
        self._canvas.write(EDGE_PX + 4, y + 20, "✕", TITLE, theme.bad, bold=True)
        for line in lines:
            y += 20
            self._canvas.write(EDGE_PX + 24, y, line, LARGE, theme.bad, bold=True)
        self._canvas.write(EDGE_PX + 24, y + 20, header.hint or "", SMALL, theme.secondary)
        return bottom

    def _cause_lines(self, header: Header) -> list[str]:
        """Wrapped by measured width; nothing is cut off but what no one would read."""
        room = WIDTH_PX - 2 * EDGE_PX - 36
        return self._canvas.wrapped(header.cause or "", room, LARGE, most=6, bold=True)

    def _bar(self, y: float, share: float) -> None:
        width = WIDTH_PX - 2 * EDGE_PX
        self._canvas.patch(EDGE_PX, y, width, 5, face=self._theme.track)
        self._canvas.patch(EDGE_PX, y, width * share, 5, face=self._theme.fill)

    # charts

    def _paint_chart(
        self, chart: Chart, span: tuple[float, float], mark_s: float | None, *, is_last: bool
    ) -> None:
        axes, theme = self._axes[chart.key], self._theme
        for artist in [*axes.lines, *axes.collections, *axes.texts]:
            artist.remove()
        box = axes.get_position()
        top = (1 - box.y1) * self._canvas.height
        x = self._canvas.write(EDGE_PX, top - 12, chart.title, MEDIUM, theme.text, bold=True)
        x = self._canvas.write(x + 8, top - 12, chart.subtitle, SMALL, theme.secondary)
        self._canvas.write(x, top - 12, chart.alarm, SMALL, theme.bad)
        axes.set_xlim(span[0] / SECONDS_PER_DAY, span[1] / SECONDS_PER_DAY)
        axes.set_ylim(*chart.limits)
        self._dress(axes, chart, span, is_last=is_last and not chart.note)
        if chart.note is not None:
            axes.set_yticks([])
            self._canvas.write(LEFT_PX, top + 20, chart.note, MEDIUM, theme.secondary)
            return
        for band in chart.bands:
            x_days = band.x / SECONDS_PER_DAY
            axes.fill_between(x_days, band.low, band.high, color=theme.fill, alpha=0.18, lw=0)
        for curve in chart.curves:
            self._paint_curve(axes, curve)
        if chart.mirrored:
            axes.axhline(0.0, color=theme.axis, linewidth=0.8)
        for level in chart.levels:
            axes.axhline(level.y, color=theme.axis, linewidth=1.2)
        if mark_s is not None and span[0] <= mark_s <= span[1]:
            axes.axvline(mark_s / SECONDS_PER_DAY, color=theme.bad, linewidth=1.2)
        for time_s in chart.bad_s:
            day, heights = time_s / SECONDS_PER_DAY, axes.get_xaxis_transform()
            axes.plot([day], [0.92], "x", color=theme.bad, transform=heights)
        self._paint_labels(axes, chart)

    def _paint_curve(self, axes: Axes, curve: Curve) -> None:
        days = curve.x / SECONDS_PER_DAY
        line = Line2D(days, curve.y, **line_settings(curve.stroke))
        if curve.stroke.marker:
            line.set_markevery(max(1, len(days) // 12))
        if len(days) == 1:
            line.set_marker("o")
            line.set_markersize(3)
        axes.add_line(line)
        if curve.fill:
            axes.fill_between(days, 0.0, curve.y, color=curve.stroke.color, alpha=0.3, lw=0)

    def _dress(self, axes: Axes, chart: Chart, span: tuple[float, float], *, is_last: bool) -> None:
        theme = self._theme
        zone = datetime.now().astimezone().tzinfo
        locator = AutoDateLocator(tz=zone, minticks=3, maxticks=7)
        axes.xaxis.set_major_locator(locator)
        form = "%H:%M:%S" if span[1] - span[0] < SHORT_RUN_S else "%H:%M"
        axes.xaxis.set_major_formatter(DateFormatter(form, tz=zone))
        height = axes.get_position().height * self._canvas.height
        axes.yaxis.set_major_locator(MaxNLocator(max(2, int(height // 24)), steps=[1, 2, 5, 10]))
        spell = (lambda v: chart.spell(abs(v))) if chart.mirrored else chart.spell
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: spell(value)))
        axes.tick_params(
            length=0,
            labelsize=SMALL * POINTS_PER_PX,
            labelcolor=theme.secondary,
            labelfontfamily=FONT,
            labelbottom=is_last,
            pad=4,
            grid_color=theme.grid,
            grid_linewidth=0.8,
        )
        axes.grid(visible=chart.note is None)
        axes.set_axisbelow(True)

    def _paint_labels(self, axes: Axes, chart: Chart) -> None:
        """At the right end of every line: a leader, its dash, its name and its last value."""
        theme = self._theme
        box = axes.get_position()
        bottom_px, top_px = (1 - box.y0) * self._canvas.height, (1 - box.y1) * self._canvas.height
        low, high = chart.limits

        def height_of(value: float) -> float:
            share = (value - low) / (high - low) if high > low else 0.5
            height: float = bottom_px - min(max(share, 0.0), 1.0) * (bottom_px - top_px)
            return height

        labels: list[tuple[float, str, str, Stroke, str]] = [
            (height_of(c.end), c.name, c.value, c.stroke, theme.bad if c.is_bad else theme.text)
            for c in chart.curves
        ]
        plain = Stroke(theme.axis, width=1.2)
        labels += [(height_of(one.y), one.name, "", plain, theme.text) for one in chart.levels]
        # A label may stand a little outside of its chart, but not in the neighbor's.
        places = spread(
            [label[0] for label in labels], gap=LABEL_GAP_PX, low=top_px - 4, high=bottom_px + 4
        )
        edge = WIDTH_PX - RIGHT_PX
        for (wanted, name, value, stroke, color), place in zip(labels, places, strict=True):
            self._canvas.stroke(
                (edge, edge + LEADER_PX), (wanted, place), Stroke(theme.axis, width=0.8)
            )
            start = edge + LEADER_PX
            self._canvas.stroke((start, start + DASH_PX), (place, place), stroke)
            x: float = start + DASH_PX + 4
            room = WIDTH_PX - 4 - x - self._canvas.width(f" {value}", SMALL, bold=True) - 4
            x = self._canvas.write(
                x, place, self._canvas.shortened(name, room), SMALL, theme.secondary
            )
            self._canvas.write(x + 4, place, value, SMALL, color, bold=True)


def _height(chart: Chart) -> int:
    """Room for every label."""
    labels = len(chart.curves) + len(chart.levels)
    return 36 if chart.note else max(chart.height_px, LABEL_GAP_PX * labels)
