"""Usage series: what is known of one part of the node, by the second and coarser."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from jupyter_mntrain.agent.machine.usage.ring import Ring
from jupyter_mntrain.metrics.thinned.blocks import Row, Rule, joined, lowest
from jupyter_mntrain.metrics.thinned.samples import UNKNOWN
from jupyter_mntrain.model import tunables

MOST_UNSAVED = 600
"""Seconds that are remembered while the disk is full."""


class Resolution(NamedTuple):
    """One resolution.

    Args:
        name: ending of its files.
        step_s: seconds that a row stands for.
        rows: that are kept.
    """

    name: str
    step_s: int
    rows: int

    @property
    def kept_s(self) -> int:
        return self.step_s * self.rows


def _rows(step_s: int, kept_s: float) -> int:
    return max(1, round(kept_s / step_s))


LEVELS = (
    Resolution("second", 1, _rows(1, tunables.seconds("history.second_kept_s"))),
    Resolution("minute", 60, _rows(60, tunables.seconds("history.minute_kept_s"))),
    Resolution("ten_minutes", 600, _rows(600, tunables.seconds("history.ten_minutes_kept_s"))),
)
"""Finest first. Each row of a coarser one is made of those of the one before."""

STATISTICS = 4
"""Floats per figure in a row: sum and number of known values, lowest, highest."""


class UsageSeries:
    """Figures of one part of the node: the node itself, a GPU, an interface.

    The first float of each row is when the agent began that took it: two rows with a gap between
    them tell so whether it was another agent. Only what was not saved yet is in memory.

    Args:
        base: path of its files, without their ending.
        figures: how many it has.
    """

    def __init__(self, base: Path, figures: int) -> None:
        self._figures = figures
        self._rules: tuple[Rule, ...] = (max, *(sum, sum, lowest, max) * figures)
        # A single second has neither a number of values nor extremes.
        widths = (1 + figures, len(self._rules), len(self._rules))
        self._rings = tuple(
            Ring(base.with_name(f"{base.name}.{level.name}"), width, level.rows)
            for level, width in zip(LEVELS, widths, strict=True)
        )
        self._unsaved: dict[int, Row] = {}

    def add(self, time_s: float, began_s: float, values: Sequence[float | None]) -> None:
        """Take the figures of a second; ``None`` = not known."""
        known = (UNKNOWN if value is None else float(value) for value in values)
        self._unsaved[int(time_s)] = (began_s, *known)
        while len(self._unsaved) > MOST_UNSAVED:
            del self._unsaved[next(iter(self._unsaved))]

    def save(self) -> None:
        """Write what is new, and the coarser rows that it changes.

        Raises:
            OSError: the disk is full; what was not written is tried again.
        """
        if not self._unsaved:
            return
        self._rings[0].write(self._unsaved)
        numbers = set(self._unsaved)
        for index, level in enumerate(LEVELS[1:], start=1):
            factor = level.step_s // LEVELS[index - 1].step_s
            numbers = {number // factor for number in numbers}
            changed = {}
            for number in numbers:
                parts = self.rows(index - 1, number * factor, (number + 1) * factor)
                if parts:
                    changed[number] = self.joined(list(parts.values()))
            self._rings[index].write(changed)
        self._unsaved.clear()

    def rows(self, index: int, begin: int, end: int) -> dict[int, Row]:
        """Rows of a level by number, each with all statistics; as of the last :meth:`save`.

        Raises:
            OSError: the disk fails.
        """
        found = self._rings[index].read(begin, end)
        return found if index else {number: _single(row) for number, row in found.items()}

    def remove_if_older(self, now_s: float) -> bool:
        """Delete its files if they have nothing that is still kept; return whether they had not.

        Raises:
            OSError: the disk fails.
        """
        level = LEVELS[-1]
        newest = int(now_s) // level.step_s
        if self._unsaved or self.rows(len(LEVELS) - 1, newest - level.rows, newest + 2):
            return False
        for ring in self._rings:
            ring.remove()
        return True

    def joined(self, rows: Sequence[Row]) -> Row:
        """One row in place of several."""
        return joined(rows, self._rules)


def _single(row: Row) -> Row:
    """The statistics of one second."""
    began_s, *values = row
    statistics: list[float] = [began_s]
    for value in values:
        is_known = value != UNKNOWN
        statistics += (value if is_known else 0.0, float(is_known), value, value)
    return tuple(statistics)
