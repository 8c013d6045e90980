"""Step picture: what each rank computes, sends and waits for in one step, as a Gantt chart.

A predicted step and a recorded one are drawn below each other, over one time axis. It imports
matplotlib, which takes half a second: import it in the function that draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from matplotlib.ticker import MaxNLocator

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.records.plan import SpanKind, StepSpan, StepSpans
from jupyter_mntrain.show import formats
from jupyter_mntrain.show.exports.chrome_trace import WORDS
from jupyter_mntrain.show.picture.canvas import Canvas
from jupyter_mntrain.show.picture.theme import (
    EDGE_PX,
    MEDIUM,
    SMALL,
    THEMES,
    WIDTH_PX,
    Stroke,
    Theme,
)

MOST_RANKS: Final = 16
"""Ranks drawn per step; of more, only the number."""

LEFT_PX = 176
LANE_PX, LINK_PX, GAP_PX = 22, 5, 12
TITLE_PX, HEADING_PX, AXIS_PX, LEGEND_PX = 28, 22, 22, 24
LEAST_NUMBERED_PX = 12
ON_FILL: Final = "#ffffff"
NUMBERED: Final[tuple[SpanKind, ...]] = ("F", "B", "I")


class SeenStep(Record, frozen=True):
    """A step to draw.

    Args:
        title: such as ``predicted`` or ``step 120``.
        ranks: for people, such as ``r0 node1``; one per rank of the spans.
    """

    title: str
    spans: StepSpans
    ranks: tuple[str, ...]


def step_picture(steps: Sequence[SeenStep], *, theme: str = "auto") -> bytes:
    """Draw steps below each other as a PNG that is ``WIDTH_PX`` page pixels wide.

    Args:
        steps: one or two.
        theme: ``auto`` (transparent, fits light and dark), ``light`` or ``dark``.
    """
    return StepPainter(theme).paint(steps)


class StepPainter:
    """Draws one picture.

    Args:
        theme: as for :func:`step_picture`.
    """

    def __init__(self, theme: str = "auto") -> None:
        self._theme: Theme = THEMES[theme]
        self.canvas = Canvas(self._theme.background)
        self._end_s = 0.0
        self._looks: dict[SpanKind, tuple[str, str, str]] = {
            "F": (self._theme.fill, self._theme.track, ""),
            "B": (self._theme.soft, self._theme.fill, ""),
            "I": (self._theme.soft, self._theme.fill, ""),
            "W": ("none", self._theme.fill, "-----"),
            "update": (self._theme.axis, "none", ""),
            "wait": ("none", self._theme.wait, "//////"),
            "send": (self._theme.text, "none", ""),
            "receive": ("none", self._theme.text, ""),
        }
        """Face, edge and hatch."""

    def paint(self, steps: Sequence[SeenStep]) -> bytes:
        """Return the picture as PNG."""
        theme, canvas = self._theme, self.canvas
        self._end_s = max((step.spans.seconds for step in steps), default=0.0)
        kinds = {span.kind for step in steps for rank in _drawn(step) for span in rank}
        has_links = bool(kinds & {"send", "receive"})
        heights = [_height(step, has_links=has_links) for step in steps]
        canvas.resize(TITLE_PX + sum(heights) + AXIS_PX + LEGEND_PX)
        x = canvas.write(EDGE_PX, TITLE_PX / 2, "One step", MEDIUM, theme.text, bold=True)
        said = "numbers are microbatches"
        said += "; thin lanes are the messages of that rank" if has_links else ""
        canvas.write(x + 10, TITLE_PX / 2, said, SMALL, theme.secondary)
        top = float(TITLE_PX)
        bottom = top + sum(heights)
        self._paint_axis(top, bottom)
        for step, height in zip(steps, heights, strict=True):
            self._paint_step(step, top, has_links=has_links)
            top += height
        self._paint_legend(kinds, bottom + AXIS_PX + LEGEND_PX / 2)
        return canvas.png()

    def _x(self, time_s: float) -> float:
        room = WIDTH_PX - LEFT_PX - EDGE_PX
        return LEFT_PX + (time_s / self._end_s * room if self._end_s > 0 else 0.0)

    def _paint_axis(self, top: float, bottom: float) -> None:
        theme, ticks = self._theme, MaxNLocator(6, steps=[1, 2, 5, 10])
        for value in ticks.tick_values(0.0, self._end_s):
            x = self._x(float(value))
            if not LEFT_PX <= x <= WIDTH_PX - EDGE_PX:
                continue
            self.canvas.stroke((x, x), (top, bottom), Stroke(theme.grid, width=0.8))
            word = formats.seconds(float(value)) if value else "0"
            half = self.canvas.width(word, SMALL, bold=False) / 2
            x = min(x - half, WIDTH_PX - 2 - 2 * half)
            self.canvas.write(x, bottom + AXIS_PX / 2, word, SMALL, theme.secondary)

    def _paint_step(self, step: SeenStep, top: float, *, has_links: bool) -> None:
        theme, canvas = self._theme, self.canvas
        word = f"{step.title}, {formats.seconds(step.spans.seconds)}"
        canvas.write(EDGE_PX, top + HEADING_PX / 2, word, SMALL, theme.text, bold=True)
        y = top + HEADING_PX
        for name, spans in zip(step.ranks, _drawn(step), strict=False):
            shown = canvas.shortened(name, LEFT_PX - EDGE_PX - 50, SMALL)
            canvas.write(EDGE_PX, y + LANE_PX / 2, shown, SMALL, theme.text)
            self._paint_lane(spans, y)
            y += LANE_PX
            if has_links:
                for word in ("send", "receive"):
                    y += 2
                    right = LEFT_PX - 6 - canvas.width(word, 8, bold=False)
                    canvas.write(right, y + LINK_PX / 2, word, 8, theme.secondary)
                    y += LINK_PX + 2
            y += GAP_PX
        more = len(step.spans.ranks) - MOST_RANKS
        if more > 0:
            word = f"… and {more} more ranks"
            canvas.write(EDGE_PX, y + GAP_PX / 2, word, SMALL, theme.secondary)

    def _paint_lane(self, spans: Sequence[StepSpan], top: float) -> None:
        """Draw a rank: what it computes, and below that its messages."""
        canvas, end = self.canvas, self._x(self._end_s)
        canvas.boxes([(LEFT_PX, top, end - LEFT_PX, LANE_PX)], edge=self._theme.track)
        link = LINK_PX + 4
        for kind, (face, edge, hatch) in self._looks.items():
            lane = {"send": top + LANE_PX + 2, "receive": top + LANE_PX + 2 + link}.get(kind, top)
            height = LINK_PX if kind in ("send", "receive") else LANE_PX
            places = [
                (x, lane, max(0.5, self._x(span.end_s) - x), height)
                for span in spans
                if span.kind == kind
                for x in [self._x(span.begin_s)]
            ]
            if places:
                canvas.boxes(places, face=face, edge=edge, hatch=hatch)
        for span in spans:
            if span.kind in NUMBERED and span.microbatch is not None:
                self._number(span, top)

    def _number(self, span: StepSpan, top: float) -> None:
        left, right = self._x(span.begin_s), self._x(span.end_s)
        word = str((span.microbatch or 0) + 1)
        width = self.canvas.width(word, 9, bold=False)
        if right - left >= max(LEAST_NUMBERED_PX, width + 2):
            color = ON_FILL if span.kind == "F" else self._theme.text
            self.canvas.write((left + right - width) / 2, top + LANE_PX / 2, word, 9, color)

    def _paint_legend(self, kinds: set[SpanKind], y: float) -> None:
        x, words = float(EDGE_PX), dict(WORDS)
        if {"B", "I"} <= kinds:  # of unlike ranks; they look alike
            words["B"] = f"{words['B']}, {words.pop('I')}"
        for kind, word in words.items():
            if kind not in kinds:
                continue
            face, edge, hatch = self._looks[kind]
            high = LINK_PX if kind in ("send", "receive") else 10
            self.canvas.boxes([(x, y - high / 2, 22, high)], face=face, edge=edge, hatch=hatch)
            x = self.canvas.write(x + 28, y, word, SMALL, self._theme.text) + 16


def _drawn(step: SeenStep) -> Sequence[tuple[StepSpan, ...]]:
    return step.spans.ranks[:MOST_RANKS]


def _height(step: SeenStep, *, has_links: bool) -> float:
    each = LANE_PX + GAP_PX + (2 * (LINK_PX + 4) if has_links else 0)
    more = 16 if len(step.spans.ranks) > MOST_RANKS else 0
    return HEADING_PX + each * len(_drawn(step)) + more
