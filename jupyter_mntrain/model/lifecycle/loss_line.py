"""Loss line: a job's loss over all its steps, in few enough points to be shown in a list."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import isfinite, nan
from typing import Final

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.records.number import Number, carried

MOST_POINTS: Final = 32
"""Lists give it about 50 pixels, and a node keeps a thousand."""


class LossLine(Record, frozen=True):
    """Loss line: lowest and highest loss of neighboring steps, with equally many steps per point.

    Args:
        begin: first step that the first point may hold; the next point begins ``width`` later.
        lows, highs: of each point, to 4 digits; NaN = none of its losses was finite; ``None`` = no
            step told one.
        first, last: the loss of the first step that told one, and of the newest.
        total_steps: that the job is to make, if it says so.
    """

    begin: int
    width: int
    lows: tuple[Number | None, ...]
    highs: tuple[Number | None, ...]
    first: Number
    last: Number
    total_steps: int | None = None


class Losses:
    """Builds a loss line step by step, in a fixed size for any number of steps.

    With several ranks that tell a loss, the line is that of the first one. A step that is made
    again, by an attempt that resumes, takes the place of the earlier one and of those after it.

    Args:
        line: to go on from.
    """

    def __init__(self, line: LossLine | None = None) -> None:
        self._rank: int | None = None
        self._made = line
        self._begin, self._width = (line.begin, line.width) if line else (0, 1)
        self._lows = _known(line.lows) if line else []
        self._highs = _known(line.highs) if line else []
        self._first = float(line.first) if line else 0.0
        self._last = float(line.last) if line else 0.0
        self._total_steps = line.total_steps if line else None
        # Of a line that goes on only its last point is known: a step of it made again counts twice.
        self._last_step = self._begin + self._width * (len(self._lows) - 1) - 1

    @property
    def line(self) -> LossLine | None:
        """Return the loss line, the same object until it changes; ``None`` before the
        first loss.
        """
        if self._made is None and self._lows:
            self._made = LossLine(
                begin=self._begin,
                width=self._width,
                lows=_told(self._lows),
                highs=_told(self._highs),
                first=carried(self._first),
                last=carried(self._last),
                total_steps=self._total_steps,
            )
        return self._made

    def begin_attempt(self) -> None:
        """Follow the first rank that reports a loss from now on, as ranks may have moved."""
        self._rank = None

    def plan(self, total_steps: int | None) -> None:
        """Set the total number of steps of the job."""
        if total_steps is not None and total_steps != self._total_steps:
            self._total_steps, self._made = total_steps, None

    def take(self, rank: int, step: int, loss: float) -> None:
        """Add the loss of one step, which may be NaN or infinite."""
        if self._rank is not None and rank > self._rank:
            return
        self._rank, self._made = rank, None
        if self._lows and step <= self._last_step:
            del self._lows[max(0, step // self._width - self._begin // self._width) :]
            del self._highs[len(self._lows) :]
        if not self._lows:
            self._begin, self._width, self._first = step, 1, loss
        while (at := step // self._width - self._begin // self._width) >= MOST_POINTS:
            self._join()
        while len(self._lows) <= at:
            self._lows.append(None)
            self._highs.append(None)
        self._last, self._last_step = loss, step
        shown = float(f"{loss:.4g}")  # a thousand jobs are kept in memory, and packed
        self._lows[at] = _joined((self._lows[at], shown), min)
        self._highs[at] = _joined((self._highs[at], shown), max)

    def _join(self) -> None:
        """Merge pairs of points. Points begin at multiples of their width."""
        is_odd = self._begin // self._width % 2
        self._begin = self._begin // self._width * self._width - is_odd * self._width
        self._width *= 2
        for values, rule in ((self._lows, min), (self._highs, max)):
            padded = [*[None] * is_odd, *values]
            pairs = (padded[one : one + 2] for one in range(0, len(padded), 2))
            values[:] = [_joined(pair, rule) for pair in pairs]


def _joined(values: Iterable[float | None], rule: Callable[[list[float]], float]) -> float | None:
    """Combine the finite values; NaN if there are only others; ``None`` if there is no value."""
    told = [one for one in values if one is not None]
    finite = [one for one in told if isfinite(one)]
    return rule(finite) if finite else nan if told else None


def _told(values: Iterable[float | None]) -> tuple[Number | None, ...]:
    return tuple(None if one is None else carried(one) for one in values)


def _known(values: Iterable[Number | None]) -> list[float | None]:
    return [None if one is None else float(one) for one in values]
