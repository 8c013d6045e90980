"""Canvas: text, strokes and boxes on a matplotlib ``Figure``, placed by page pixels.

It never uses pyplot: a figure of one's own may be drawn in any thread.
"""

from __future__ import annotations

import io
import textwrap
from bisect import bisect_right
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.transforms import Affine2D, BboxTransformTo, ScaledTranslation
from PIL import Image

from jupyter_mntrain.model.text.foreign import shown_line
from jupyter_mntrain.show.picture.theme import SCALE, SMALL, WIDTH_PX, Stroke

DPI = 100
POINTS_PER_PX = 72 / DPI
FONT = "DejaVu Sans"
"""A font that comes with matplotlib, so that pictures are the same everywhere."""

BOX = "□"
MOST_DRAWN = 1000
"""Characters that are measured: more than ever fit."""


class Canvas:
    """A figure :data:`WIDTH_PX` wide, whose lengths are pixels from the top left corner.

    So what is drawn stays in place when the height changes.
    """

    def __init__(self, background: str) -> None:
        self.figure = Figure(dpi=DPI * SCALE, facecolor=background)
        self.height = 0.0
        self._agg = FigureCanvasAgg(self.figure)
        self._pixels = (
            Affine2D().scale(1 / DPI, -1 / DPI)
            + self.figure.dpi_scale_trans
            + ScaledTranslation(0, 1, BboxTransformTo(self.figure.bbox))
        )

    def resize(self, height: float) -> None:
        """Set the height."""
        self.figure.set_size_inches(WIDTH_PX / DPI, height / DPI)
        self.height = height

    def clear(self) -> None:
        """Remove everything but the axes."""
        for artist in [*self.figure.texts, *self.figure.artists]:
            artist.remove()

    def png(self) -> bytes:
        """Return the picture with 256 colors: enough for a chart, in a third of the bytes."""
        self._agg.draw()
        image = Image.fromarray(np.asarray(self._agg.buffer_rgba()))
        buffer = io.BytesIO()
        image.quantize(256, method=Image.Quantize.FASTOCTREE).save(buffer, "png")
        return buffer.getvalue()

    def write(
        self, x: float, y: float, text: str, size: float, color: str, *, bold: bool = False
    ) -> float:
        """Write text vertically centered at ``y``; return the ``x`` where it ends.

        It is one line, and cut at the picture's edge.
        """
        text = self.shortened(text, WIDTH_PX - x, size, bold=bold)
        end = x + self.width(text, size, bold=bold)
        if end > WIDTH_PX:  # not even one character
            return x
        self.figure.text(
            x,
            y,
            text,
            fontproperties=_font(size, bold=bold),
            color=color,
            va="center_baseline",
            parse_math=False,
            transform=self._pixels,
        )
        return end

    def shortened(self, text: str, room: float, size: float = SMALL, *, bold: bool = False) -> str:
        """Return the text, cut with an ellipsis if it is wider than ``room``."""
        text = self.drawable(text, bold=bold)
        if self.width(text, size, bold=bold) <= room:
            return text
        lengths = range(1, len(text))
        fitting = bisect_right(
            lengths, room, key=lambda n: self.width(f"{text[:n]}…", size, bold=bold)
        )
        return f"{text[: max(1, fitting)].rstrip()}…"

    def wrapped(
        self, text: str, room: float, size: float, *, most: int, bold: bool = False
    ) -> list[str]:
        """Return the first ``most`` lines of a text, wrapped to ``room``; long words are broken."""
        text = self.drawable(text, bold=bold)
        count = 1 + int(len(text) * room / max(1.0, self.width(text, size, bold=bold)))
        while True:
            lines = textwrap.wrap(text, max(1, count))[:most]
            if count <= 1 or all(self.width(one, size, bold=bold) <= room for one in lines):
                return lines
            count -= 1

    def drawable(self, text: str, *, bold: bool = False) -> str:
        """Return the text on one line, with a box for each character that the font lacks.

        matplotlib would warn of those characters.
        """
        known = _characters(bold=bold)
        return "".join(one if ord(one) in known else BOX for one in shown_line(text, MOST_DRAWN))

    def width(self, text: str, size: float, *, bold: bool) -> float:
        """Return the width of a text in pixels."""
        if not text:
            return 0.0
        renderer: Any = self._agg.get_renderer()
        font = _font(size, bold=bold)
        width: float = renderer.get_text_width_height_descent(text, font, ismath=False)[0]
        return width / SCALE

    def stroke(self, xs: tuple[float, float], ys: tuple[float, float], stroke: Stroke) -> None:
        """Draw a straight line; its marker, if any, is in the middle."""
        (x0, x1), (y0, y1) = xs, ys
        middle = [x0, (x0 + x1) / 2, x1], [y0, (y0 + y1) / 2, y1]
        line = Line2D(*middle, markevery=[1], transform=self._pixels, **line_settings(stroke))
        self.figure.add_artist(line)

    def patch(
        self,
        corner: tuple[float, float],
        size: tuple[float, float],
        *,
        face: str = "none",
        edge: str = "none",
    ) -> None:
        """Draw a box."""
        box = Rectangle(corner, *size, facecolor=face, edgecolor=edge, transform=self._pixels)
        self.figure.add_artist(box)

    def boxes(
        self,
        places: Sequence[tuple[float, float, float, float]],
        *,
        face: str = "none",
        edge: str = "none",
        hatch: str = "",
    ) -> None:
        """Draw many boxes in one style: ``x, y, width, height`` of each.

        Args:
            hatch: matplotlib's, in the color of the edge.
        """
        found = PatchCollection(
            [Rectangle((x, y), width, height) for x, y, width, height in places],
            facecolors=face,
            edgecolors=edge,
            linewidths=0.5,
            zorder=2.5,  # above lines, below text
            hatch=hatch or None,
            transform=self._pixels,
        )
        self.figure.add_artist(found)


@cache
def _font(size: float, *, bold: bool) -> FontProperties:
    weight = "bold" if bold else "normal"
    return FontProperties(family=FONT, weight=weight, size=size * POINTS_PER_PX)


@cache
def _characters(*, bold: bool) -> frozenset[int]:
    return frozenset(get_font(findfont(_font(SMALL, bold=bold))).get_charmap())


def line_settings(stroke: Stroke) -> dict[str, Any]:
    """Convert a stroke to matplotlib's line properties."""
    # matplotlib scales dashes by the line width; these are pixels.
    dash = tuple(length * POINTS_PER_PX / stroke.width for length in stroke.dash)
    return {
        "color": stroke.color,
        "linewidth": stroke.width,
        "linestyle": (0, dash) if dash else "-",
        "solid_capstyle": "butt",
        "dash_capstyle": "butt",
        "marker": stroke.marker or None,
        "markersize": 3.5,
    }
