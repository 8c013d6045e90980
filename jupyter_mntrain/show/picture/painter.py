"""Painter: draws the header and the charts of a picture."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import numpy as np
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, DateFormatter
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from jupyter_mntrain.metrics.summary import EventMark, WrittenText
from jupyter_mntrain.model._record import Record
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
"""A time axis shorter than this shows seconds."""

TITLE_PX = 26
GAP_PX = 8
FOOT_PX = 26
NOTE_PX = 20
LEADER_PX = 8
DASH_PX = 16
LEVEL_DASH = (0, (4, 3))
FULL_PX = WIDTH_PX - 2 * EDGE_PX


class Marks(Record, frozen=True):
    """What is marked on the time axis of every chart.

    Args:
        failed_s: Unix time at which the job failed.
    """

    failed_s: float | None = None
    events: tuple[EventMark, ...] = ()


class Painter:
    """Paints one frame after another; axes are kept between frames."""

    def __init__(self, theme: Theme) -> None:
        self._theme = theme
        self._canvas = Canvas(theme.background)
        self.figure = self._canvas.figure
        self._axes: dict[str, Axes] = {}
        self._shown: list[WrittenText] = []
        self._samples: list[NewestText] = []

    def paint(
        self,
        header: Header,
        charts: list[Chart],
        span: tuple[float, float],
        marks: Marks,
        note: str = "",
        samples: Sequence[WrittenText] = (),
    ) -> bytes:
        """Return one frame as PNG.

        Args:
            span: Unix times at both ends of the time axis.
            note: small text below everything.
            samples: texts that the model wrote, shown below the charts.
        """
        self._canvas.clear()
        top = self._paint_header(header)
        heights = [_height(chart) for chart in charts]
        below = top + sum(h + TITLE_PX + GAP_PX for h in heights) + (FOOT_PX if charts else 0)
        height = below + block_height(self._lay_out(samples)) + (NOTE_PX if note else 0)
        self._canvas.resize(height)
        for key in self._axes.keys() - {chart.key for chart in charts}:
            self._axes.pop(key).remove()
        for chart, chart_height in zip(charts, heights, strict=True):
            top += TITLE_PX
            self._paint_chart(chart, top, chart_height, span, is_last=chart is charts[-1])
            if chart.note is None:
                self._paint_marks(chart, top, span, marks, has_labels=chart is charts[0])
            top += chart_height + GAP_PX
        paint_samples(self._canvas, self._theme, self._samples, below)
        self._canvas.write(EDGE_PX, height - NOTE_PX / 2, note, SMALL, self._theme.secondary)
        return self._canvas.png()

    def _lay_out(self, samples: Sequence[WrittenText]) -> list[NewestText]:
        # Only when there are new ones: measuring text takes longer than drawing it.
        shown = newest_texts(samples)
        if shown != self._shown:
            self._shown, self._samples = shown, [lay_out(self._canvas, one) for one in shown]
        return self._samples

    # header

    def _paint_header(self, header: Header) -> float:
        """Draw the header; return its height."""
        theme, write = self._theme, self._canvas.write
        y = 20 + (self._paint_cause(header.cause, header.hint or "") if header.cause else 0.0)
        y += self._paint_warnings(header.warnings, y)
        color = theme.bad if header.state == "failed" else theme.fill
        x = write(EDGE_PX, y, header.icon, LARGE, color, bold=True) + 6
        x = write(x, y, header.state, LARGE, theme.text) + 10
        x = write(x, y, header.name, TITLE, theme.text, bold=True) + 10
        write(x, y, header.identity, SMALL, theme.secondary)
        if header.progress is not None:
            y += 18
            for share, color in ((1.0, theme.track), (header.progress, theme.fill)):
                self._canvas.patch((EDGE_PX, y), (share * FULL_PX, 5), face=color)
        if header.facts:
            y += 20
            x = EDGE_PX
            for number, fact in enumerate(header.facts):
                x = write(x, y, fact, MEDIUM, theme.text, bold=number == 0) + 24
        if header.numbers:
            y += 44
            for number, (label, value, is_bad) in enumerate(header.numbers):
                x = EDGE_PX + number * FULL_PX / len(header.numbers)
                write(x, y - 20, label, SMALL, theme.secondary)
                write(x, y, value, TITLE, theme.bad if is_bad else theme.text, bold=True)
        y += 10
        for who, what in header.waiting:
            y += 20
            write(EDGE_PX, y, who, MEDIUM, theme.text, bold=True)
            write(EDGE_PX + 180, y, what, MEDIUM, theme.text)
        if header.footer:
            y += 24
            write(EDGE_PX, y, header.footer, SMALL, theme.secondary)
        return y + 8

    def _paint_cause(self, cause: str, hint: str) -> float:
        """Draw the cause of a failure in a frame; return its height."""
        theme, canvas = self._theme, self._canvas
        lines = canvas.wrapped(cause, FULL_PX - 36, LARGE, most=6, bold=True)
        height = 20.0 * len(lines) + 36
        canvas.patch((EDGE_PX / 2, 4), (WIDTH_PX - EDGE_PX, height - 8), edge=theme.bad)
        canvas.write(EDGE_PX + 4, 22, "✕", TITLE, theme.bad, bold=True)
        for number, line in enumerate(lines):
            canvas.write(EDGE_PX + 24, 22 + 20 * number, line, LARGE, theme.bad, bold=True)
        canvas.write(EDGE_PX + 24, 22 + 20 * len(lines), hint, SMALL, theme.secondary)
        return height

    def _paint_warnings(self, warnings: Sequence[str], top: float) -> float:
        """Draw the warnings; return their height."""
        theme, canvas = self._theme, self._canvas
        height = 0.0
        for warning in warnings:
            canvas.write(EDGE_PX + 4, top + height, "⚠", LARGE, theme.bad, bold=True)
            for line in canvas.wrapped(warning, FULL_PX - 36, MEDIUM, most=3, bold=True):
                canvas.write(EDGE_PX + 24, top + height, line, MEDIUM, theme.text, bold=True)
                height += 18
            height += 6
        return height

    # charts

    def _paint_chart(
        self,
        chart: Chart,
        top: float,
        height: float,
        span: tuple[float, float],
        *,
        is_last: bool,
    ) -> None:
        theme, axes = self._theme, self._axes_of(chart, top, height)
        x = self._canvas.write(EDGE_PX, top - 12, chart.title, MEDIUM, theme.text, bold=True)
        x = self._canvas.write(x + 8, top - 12, chart.subtitle, SMALL, theme.secondary)
        self._canvas.write(x, top - 12, chart.alarm, SMALL, theme.bad)
        axes.set_xlim(span[0] / SECONDS_PER_DAY, span[1] / SECONDS_PER_DAY)
        axes.set_ylim(*chart.limits)
        self._dress(axes, chart, height, span, is_last=is_last and not chart.note)
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
            style = LEVEL_DASH if level.is_dashed else "-"
            axes.axhline(level.y, color=theme.axis, linewidth=1.2, linestyle=style)
        for time_s in chart.bad_s:
            day, heights = time_s / SECONDS_PER_DAY, axes.get_xaxis_transform()
            axes.plot([day], [0.92], "x", color=theme.bad, transform=heights)
        self._paint_labels(chart, top, height)

    def _paint_marks(
        self,
        chart: Chart,
        top: float,
        span: tuple[float, float],
        marks: Marks,
        *,
        has_labels: bool,
    ) -> None:
        """Draw vertical lines where something began, and shade the time until it was over."""
        theme, axes = self._theme, self._axes[chart.key]
        failed_s, (begin_s, end_s) = marks.failed_s, span
        if failed_s is not None and begin_s <= failed_s <= end_s:
            axes.axvline(failed_s / SECONDS_PER_DAY, color=theme.bad, linewidth=1.2)
        free = float(LEFT_PX)
        for event in marks.events:
            if not begin_s <= event.time_s <= end_s:
                continue
            first, last = event.time_s, min(event.end_s or event.time_s, end_s)
            axes.axvline(first / SECONDS_PER_DAY, color=theme.bad, linewidth=1.0, linestyle=":")
            if last > first:
                days = first / SECONDS_PER_DAY, last / SECONDS_PER_DAY
                axes.axvspan(*days, color=theme.bad, alpha=0.08, linewidth=0)
            share = (first - begin_s) / (end_s - begin_s)
            x = LEFT_PX + share * (WIDTH_PX - LEFT_PX - RIGHT_PX) + 3
            width = self._canvas.width(event.label, SMALL, bold=False)
            if has_labels and x >= free and x + width < WIDTH_PX - RIGHT_PX:
                free = self._canvas.write(x, top + 7, event.label, SMALL, theme.bad)

    def _axes_of(self, chart: Chart, top: float, height: float) -> Axes:
        """Return the chart's axes, empty and in place."""
        axes = self._axes.get(chart.key)
        if axes is None:
            axes = self._axes[chart.key] = self.figure.add_axes((0, 0, 1, 1))
            axes.patch.set_visible(False)
            axes.spines[:].set_visible(False)
        for artist in [*axes.lines, *axes.collections, *axes.patches, *axes.texts]:
            artist.remove()
        whole, width = self._canvas.height, WIDTH_PX - LEFT_PX - RIGHT_PX
        bottom = 1 - (top + height) / whole
        axes.set_position((LEFT_PX / WIDTH_PX, bottom, width / WIDTH_PX, height / whole))
        return axes

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

    def _dress(
        self, axes: Axes, chart: Chart, height: float, span: tuple[float, float], *, is_last: bool
    ) -> None:
        """Set ticks and grid."""
        theme = self._theme
        zone = datetime.now().astimezone().tzinfo
        locator = AutoDateLocator(tz=zone, minticks=3, maxticks=7)
        axes.xaxis.set_major_locator(locator)
        form = "%H:%M:%S" if span[1] - span[0] < SHORT_RUN_S else "%H:%M"
        axes.xaxis.set_major_formatter(DateFormatter(form, tz=zone))
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

    def _paint_labels(self, chart: Chart, top: float, height: float) -> None:
        """Draw a leader, dash, name and last value at the right end of every line."""
        theme, canvas, (low, high) = self._theme, self._canvas, chart.limits
        plain, dashed = Stroke(theme.axis, width=1.2), Stroke(theme.axis, width=1.2, dash=(4, 3))
        labels: list[tuple[float, str, str, Stroke, str]] = [
            (one.end, one.name, one.value, one.stroke, theme.bad if one.is_bad else theme.text)
            for one in chart.curves
        ]
        labels += [
            (one.y, one.name, one.value, dashed if one.is_dashed else plain, theme.text)
            for one in chart.levels
        ]
        shares = np.interp([label[0] for label in labels], (low, high), (0.0, 1.0))
        wanted = [top + height * (1 - float(share)) for share in shares]
        # A label may stand a little outside of its chart, but not in the neighbor's.
        places = spread(wanted, gap=LABEL_GAP_PX, low=top - 4, high=top + height + 4)
        edge = WIDTH_PX - RIGHT_PX
        dash, text = edge + LEADER_PX, edge + LEADER_PX + DASH_PX + 4
        for (_, name, value, stroke, color), y, place in zip(labels, wanted, places, strict=True):
            canvas.stroke((edge, dash), (y, place), Stroke(theme.axis, width=0.8))
            canvas.stroke((dash, dash + DASH_PX), (place, place), stroke)
            room = WIDTH_PX - 8 - text - canvas.width(f" {value}", SMALL, bold=True)
            x = canvas.write(text, place, canvas.shortened(name, room), SMALL, theme.secondary)
            canvas.write(x + 4, place, value, SMALL, color, bold=True)


def _height(chart: Chart) -> int:
    """Return a height in pixels that fits every label."""
    labels = len(chart.curves) + len(chart.levels)
    return 36 if chart.note else max(chart.height_px, LABEL_GAP_PX * labels)
