"""Canvas: text, strokes and boxes at page pixels of a matplotlib ``Figure``.

Never pyplot: a figure of one's own may be drawn in any thread.
"""

from __future__ import annotations

import io
from functools import cache
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from PIL import Image

from jupyter_mntrain.show.picture.theme import SCALE, SMALL, WIDTH_PX, Stroke

DPI = 100
POINTS_PER_PX = 72 / DPI
FONT = "DejaVu Sans"
"""Comes with matplotlib: the picture is the same on every machine."""

BOX = "□"


class Canvas:
    """:data:`WIDTH_PX` wide; all lengths are pixels from the top left corner."""

    def __init__(self) -> None:
        self.figure = Figure(dpi=DPI * SCALE)
        self.height = 0.0
        self._agg = FigureCanvasAgg(self.figure)

    def resize(self, height: float, background: str) -> None:
        """Another height, and nothing on it."""
        self.figure.clear()
        self.figure.set_facecolor(background)
        self.figure.set_size_inches(WIDTH_PX / DPI, height / DPI)
        self.height = height

    def clear(self) -> None:
        """Everything but the axes goes."""
        for artist in [*self.figure.texts, *self.figure.artists]:
            artist.remove()

    def png(self) -> bytes:
        """256 colors are more than a chart has, and a third of the bytes."""
        self._agg.draw()
        image = Image.fromarray(np.asarray(self._agg.buffer_rgba()))
        buffer = io.BytesIO()
        image.quantize(256, method=Image.Quantize.FASTOCTREE).save(buffer, "png")
        return buffer.getvalue()

    def write(
        self, x: float, y: float, text: str, size: float, color: str, *, bold: bool = False
    ) -> float:
        """Text with its middle at height ``y``; returns where it ends."""
        self.figure.text(
            x / WIDTH_PX,
            1 - y / self.height,
            text,
            fontproperties=_font(size, bold=bold),
            color=color,
            va="center_baseline",
            ha="left",
            parse_math=False,
        )
        return x + self.width(text, size, bold=bold)

    def shortened(self, text: str, room: float, size: float = SMALL, *, bold: bool = False) -> str:
        """With an ellipsis, where it would be wider than ``room``."""
        if self.width(text, size, bold=bold) <= room:
            return text
        while len(text) > 1 and self.width(f"{text}…", size, bold=bold) > room:
            text = text[:-1]
        return f"{text.rstrip()}…"

    def wrapped(
        self, text: str, room: float, size: float, *, most: int, bold: bool = False
    ) -> list[str]:
        """The first lines of whole words, none wider than ``room``; a longer word is broken.

        Args:
            most: lines.
        """
        lines: list[str] = []
        for word in text.split():
            if len(lines) > most:
                break
            longer = f"{lines[-1]} {word}" if lines else word
            if lines and self.width(longer, size, bold=bold) <= room:
                lines[-1] = longer
            else:
                lines.extend(self._broken(word, room, size, bold=bold))
        return lines[:most]

    def _broken(self, word: str, room: float, size: float, *, bold: bool) -> list[str]:
        """A path, for example, or a language that has no spaces."""
        pieces = []
        while word:
            width = max(1.0, self.width(word, size, bold=bold))
            most = max(1, min(len(word), int(len(word) * room / width)))
            while most > 1 and self.width(word[:most], size, bold=bold) > room:
                most -= 1
            pieces.append(word[:most])
            word = word[most:]
        return pieces

    def drawable(self, text: str, *, bold: bool = False) -> str:
        """With a box for each character that the font lacks: matplotlib would warn of it."""
        known = _characters(bold=bold)
        return "".join(one if ord(one) in known else BOX for one in text)

    def width(self, text: str, size: float, *, bold: bool) -> float:
        if not text:
            return 0.0
        renderer: Any = self._agg.get_renderer()
        font = _font(size, bold=bold)
        width: float = renderer.get_text_width_height_descent(text, font, ismath=False)[0]
        return width / SCALE

    def stroke(self, xs: tuple[float, float], ys: tuple[float, float], stroke: Stroke) -> None:
        """A straight line; its marker, if it has one, is in the middle."""
        self.figure.add_artist(
            Line2D(
                [x / WIDTH_PX for x in (xs[0], sum(xs) / 2, xs[1])],
                [1 - y / self.height for y in (ys[0], sum(ys) / 2, ys[1])],
                markevery=[1],
                **line_settings(stroke),
            )
        )

    def patch(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        *,
        face: str = "none",
        edge: str = "none",
    ) -> None:
        self.figure.add_artist(
            Rectangle(
                (x / WIDTH_PX, 1 - (y + height) / self.height),
                width / WIDTH_PX,
                height / self.height,
                facecolor=face,
                edgecolor=edge,
                linewidth=1.0,
                transform=self.figure.transFigure,
            )
        )


@cache
def _font(size: float, *, bold: bool) -> FontProperties:
    weight = "bold" if bold else "normal"
    return FontProperties(family=FONT, weight=weight, size=size * POINTS_PER_PX)


@cache
def _characters(*, bold: bool) -> frozenset[int]:
    return frozenset(get_font(findfont(_font(SMALL, bold=bold))).get_charmap())


def line_settings(stroke: Stroke) -> dict[str, Any]:
    width = stroke.width
    settings: dict[str, Any] = {
        "color": stroke.color,
        "linewidth": width,
        "solid_capstyle": "butt",
        "dash_capstyle": "butt",
        "marker": stroke.marker or None,
        "markersize": 3.5,
    }
    if stroke.dash:
        # matplotlib scales dashes by the line width; these are pixels.
        scaled = tuple(length * POINTS_PER_PX / width for length in stroke.dash)
        settings["linestyle"] = (0, scaled)
    return settings
