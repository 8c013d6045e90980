"""Colours, dashes and sizes. Colour is never alone: every rank has a dash and a label too.

A picture cannot know the theme it is shown in. Its background is transparent, and every colour
here has a contrast of 3:1 or more on white and on JupyterLab's dark ``#111111`` alike.
"""

from __future__ import annotations

TEXT = "#7b7b7b"
GRID = "#8884"
BAD = "#e05252"

RANK_COLOURS = ("#2b86c5", "#cc6a1f", "#15976f", "#bd5f9a")
RANK_DASHES: tuple[object, ...] = ("solid", (0, (7, 3)), (0, (7, 2, 2, 2)), (0, (2, 2)))
SECOND_ROUND_MARKER = "o"
"""Ranks 4 to 7: the same colours and dashes, with a marker."""

WIDTH_IN = 9.6
HEADER_IN = 0.95
PANEL_IN = 1.25
FOOT_IN = 0.35
DPI = 100
LEFT, RIGHT = 0.075, 0.80
LABEL_GAP_PX = 13.0
MANY_RANKS = 8
"""Above this a band and the slowest rank replace one line per rank."""


def rank_style(rank: int) -> dict[str, object]:
    """Keyword arguments of a rank's line."""
    style: dict[str, object] = {
        "color": RANK_COLOURS[rank % 4],
        "linestyle": RANK_DASHES[rank % 4],
        "linewidth": 1.6,
    }
    if rank >= 4:
        style |= {"marker": SECOND_ROUND_MARKER, "markersize": 3, "markevery": 0.1}
    return style
