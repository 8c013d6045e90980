"""Benchmark picture: bus bandwidth by message size, with the line rate as a reference.

It imports matplotlib, which takes half a second: import it in the function that draws.
"""

from __future__ import annotations

from typing import Final

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from jupyter_mntrain.model.quantities import size_text
from jupyter_mntrain.model.records.doctor.benchmark import OPERATIONS, BenchReport
from jupyter_mntrain.show import formats
from jupyter_mntrain.show.picture.canvas import FONT, POINTS_PER_PX, Canvas, line_settings
from jupyter_mntrain.show.picture.link_chart import PER_BYTE
from jupyter_mntrain.show.picture.spread import spread
from jupyter_mntrain.show.picture.theme import (
    EDGE_PX,
    LABEL_GAP_PX,
    LEFT_PX,
    MEDIUM,
    SMALL,
    THEMES,
    WIDTH_PX,
    Stroke,
    Theme,
)
from jupyter_mntrain.show.tables.benchmark import NAMES, heading

TITLE_PX, CHART_PX, AXIS_PX = 44, 180, 26
RIGHT_PX: Final = 220
LEADER_PX, DASH_PX = 8, 18
ROOM: Final = 1.1
"""Height of the axis, of the highest value."""

REFERENCE: Final = (4.0, 3.0)


def benchmark_picture(report: BenchReport, *, theme: str = "auto") -> bytes:
    """Draw a report as a PNG that is ``WIDTH_PX`` page pixels wide.

    Args:
        theme: ``auto`` (transparent, fits light and dark), ``light`` or ``dark``.
    """
    return BenchmarkPainter(theme).paint(report)


class BenchmarkPainter:
    """Draws one picture.

    Args:
        theme: as for :func:`benchmark_picture`.
    """

    def __init__(self, theme: str = "auto") -> None:
        self._theme: Theme = THEMES[theme]
        self.canvas = Canvas(self._theme.background)

    def paint(self, report: BenchReport) -> bytes:
        """Return the picture as PNG."""
        theme, canvas = self._theme, self.canvas
        canvas.resize(TITLE_PX + CHART_PX + AXIS_PX)
        rates = [one.bus_bytes_per_s for one in report.sizes]
        top = max([*rates, report.line_bytes_per_s or 0.0], default=0.0) or 1.0
        unit = next((name for name, one in PER_BYTE.items() if top * one >= 1), "kbit/s")
        x = canvas.write(EDGE_PX, 13, "Collectives", MEDIUM, theme.text, bold=True)
        canvas.write(x + 10, 13, heading(report), SMALL, theme.secondary)
        words = f"bus bandwidth, {unit}, by message size"
        canvas.write(EDGE_PX, 32, words, SMALL, theme.secondary)
        axes = self._axes(report, top, PER_BYTE[unit])
        labels = []
        for number, operation in enumerate(OPERATIONS):
            sizes = report.of(operation)
            if not sizes:
                continue
            stroke = theme.rank(number)
            points = [one.size_bytes for one in sizes], [one.bus_bytes_per_s for one in sizes]
            line = Line2D(*points, **line_settings(stroke))
            if len(sizes) == 1:
                line.set_marker("o")
            axes.add_line(line)
            labels.append((sizes[-1].bus_bytes_per_s, NAMES[operation], stroke))
        if report.line_bytes_per_s is not None:
            stroke = Stroke(theme.axis, dash=REFERENCE, width=1.2)
            axes.add_line(
                Line2D(axes.get_xlim(), [report.line_bytes_per_s] * 2, **line_settings(stroke))
            )
            labels.append((report.line_bytes_per_s, "line rate", stroke))
        self._label(labels, top * ROOM)
        return canvas.png()

    def _axes(self, report: BenchReport, top: float, per_byte: float) -> Axes:
        theme, whole = self._theme, self.canvas.height
        axes = self.canvas.figure.add_axes(
            (
                LEFT_PX / WIDTH_PX,
                AXIS_PX / whole,
                (WIDTH_PX - LEFT_PX - RIGHT_PX) / WIDTH_PX,
                CHART_PX / whole,
            )
        )
        axes.patch.set_visible(False)
        axes.spines[:].set_visible(False)
        sizes = sorted({one.size_bytes for one in report.sizes}) or [1]
        axes.set_xscale("log", base=2)
        axes.set_xlim(sizes[0], max(sizes[-1], 2 * sizes[0]))
        axes.set_ylim(0, top * ROOM)
        axes.xaxis.set_major_locator(FixedLocator(sizes[::2]))
        axes.xaxis.set_minor_locator(FixedLocator([]))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: size_text(round(value))))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value * per_byte:.4g}"))
        ticks = [
            float(tick) / per_byte
            for tick in MaxNLocator(6, steps=[1, 2, 5, 10]).tick_values(0, top * ROOM * per_byte)
            if 0 <= float(tick) / per_byte <= top * ROOM
        ]
        axes.yaxis.set_major_locator(FixedLocator(ticks))
        axes.tick_params(
            length=0,
            labelsize=SMALL * POINTS_PER_PX,
            labelcolor=theme.secondary,
            labelfontfamily=FONT,
            pad=4,
            grid_color=theme.grid,
            grid_linewidth=0.8,
        )
        axes.grid(visible=True)
        axes.set_axisbelow(True)
        return axes

    def _label(self, labels: list[tuple[float, str, Stroke]], top: float) -> None:
        """Name each line at its right end, with its last value."""
        theme, canvas = self._theme, self.canvas
        low, high = TITLE_PX, TITLE_PX + CHART_PX
        wanted = [high - CHART_PX * min(1.0, rate / top) for rate, _, _ in labels]
        places = spread(wanted, gap=LABEL_GAP_PX, low=low, high=high)
        edge = WIDTH_PX - RIGHT_PX
        dash = edge + LEADER_PX
        for (rate, name, stroke), y, place in zip(labels, wanted, places, strict=True):
            canvas.stroke((edge, dash), (y, place), Stroke(theme.axis, width=0.8))
            canvas.stroke((dash, dash + DASH_PX), (place, place), stroke)
            x = canvas.write(dash + DASH_PX + 6, place, name, SMALL, theme.secondary)
            canvas.write(x + 6, place, formats.bit_rate(rate), SMALL, theme.text, bold=True)
