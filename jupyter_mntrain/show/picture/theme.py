"""Theme: colors, strokes and sizes of the picture.

A saved picture does not know the page it is shown on. So ``auto`` is transparent, and each of its
colors has a contrast of at least 3:1 against white and against JupyterLab's dark ``#111111``; text
has 4.2:1 on both, the most that one gray can have. Ranks differ by dash and label as well as color.
"""

from __future__ import annotations

from typing import Final

from jupyter_mntrain.model import tunables
from jupyter_mntrain.model._record import Record

WIDTH_PX: Final = 960
SCALE: Final = tunables.ratio("picture.scale")

LEFT_PX: Final = 52
RIGHT_PX: Final = 164
EDGE_PX: Final = 12
LABEL_GAP_PX: Final = 14

SMALL: Final = 11
MEDIUM: Final = 12
LARGE: Final = 13
TITLE: Final = 14
"""Font sizes in pixels of the page."""

MANY_RANKS: Final = 9
"""From this many ranks on, a band and the slowest rank are drawn instead of a line per rank."""


class Stroke(Record, frozen=True):
    """Style of a line. ``dash`` is in pixels; empty = solid."""

    color: str
    dash: tuple[float, ...] = ()
    width: float = 1.4
    marker: str = ""


class Theme(Record, frozen=True):
    """Colors by role."""

    background: str
    text: str
    secondary: str
    grid: str
    axis: str
    fill: str
    soft: str
    """The fill where it stands for less."""
    wait: str
    bad: str
    track: str
    ranks: tuple[str, str, str, str]

    def rank(self, number: int) -> Stroke:
        """Style of a rank's line. Ranks 4 to 7 repeat color and dash, with a marker."""
        return Stroke(
            color=self.ranks[number % 4],
            dash=_DASHES[number % 4],
            marker="o" if number % 8 >= 4 else "",
        )


_DASHES: Final[tuple[tuple[float, ...], ...]] = ((), (9, 4), (9, 3, 2, 3), (3, 3))

_ON_LIGHT: Final = ("#0072b2", "#c05000", "#008560", "#b4508a")
_ON_DARK: Final = ("#56b4e9", "#f2894b", "#35c79a", "#e38fc1")

THEMES: Final[dict[str, Theme]] = {
    "auto": Theme(
        background="none",
        text="#777777",
        secondary="#777777",
        grid="#88888838",
        axis="#7f7f7f",
        fill="#1976d2",
        soft="#1976d250",
        wait="#c05000",
        bad="#d83a3a",
        track="#88888850",
        ranks=_ON_LIGHT,
    ),
    "light": Theme(
        background="#ffffff",
        text="#212121",
        secondary="#616161",
        grid="#ececec",
        axis="#757575",
        fill="#1976d2",
        soft="#bcd8f4",
        wait="#c05000",
        bad="#d32f2f",
        track="#e0e0e0",
        ranks=_ON_LIGHT,
    ),
    "dark": Theme(
        background="#111111",
        text="#e0e0e0",
        secondary="#bdbdbd",
        grid="#2b2b2b",
        axis="#8a8a8a",
        fill="#2196f3",
        soft="#16466f",
        wait="#f2894b",
        bad="#e57373",
        track="#424242",
        ranks=_ON_DARK,
    ),
}
