"""Progress: reports on long work inside a rank, at most a few per second."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

T = TypeVar("T")

EVERY_S = 0.2
"""Minimum interval between reports of the same progress: a journal keeps every line."""


class ProgressWriter(Protocol):
    """Receives the progress of some work, like :meth:`Recorder.progress`."""

    def __call__(
        self, what: str, done: float, total: float | None = None, unit: str = ""
    ) -> None: ...


def unwatched(what: str, done: float, total: float | None = None, unit: str = "") -> None:
    """Ignore progress."""


class Tally:
    """Adds up amounts and reports each sum, starting with 0.

    Args:
        progress: receives the sums.
    """

    def __init__(
        self, progress: ProgressWriter, what: str, total: float | None = None, unit: str = ""
    ) -> None:
        self._progress = progress
        self._what = what
        self._total = total
        self._unit = unit
        self._done = 0.0
        self._say()

    def add(self, amount: float) -> None:
        self._done += amount
        self._say()

    def end(self) -> None:
        """Report the work as finished, whatever its total was expected to be."""
        self._total = self._done
        self._say()

    def _say(self) -> None:
        self._progress(self._what, self._done, self._total, self._unit)


class Pace:
    """Rate limiter for reports: passes the first and last of each subject, and a few in between.

    Args:
        stopwatch: seconds from an arbitrary start.
    """

    def __init__(self, stopwatch: Callable[[], float]) -> None:
        self._stopwatch = stopwatch
        self._said: dict[str, tuple[float, bool]] = {}
        """Subject → (time of its last report, whether that was its end); recent ones only."""

    def allows(self, what: str, *, is_over: bool) -> bool:
        now = self._stopwatch()
        said_s, was_over = self._said.get(what, (float("-inf"), False))
        if now - said_s < EVERY_S and (was_over or not is_over):
            return False
        self._said = {k: v for k, v in self._said.items() if now - v[0] < EVERY_S}
        self._said[what] = (now, is_over)
        return True


def tracked(
    items: Iterable[T], progress: ProgressWriter, what: str, total: float | None, unit: str
) -> Iterator[T]:
    """Yield the items, counting each when the next one is requested."""
    tally = Tally(progress, what, total, unit)
    try:
        for item in items:
            yield item
            tally.add(1)
    finally:
        tally.end()


def drawn(items: Iterable[T], what: str, total: float | None, unit: str, line: int) -> Iterable[T]:
    """Show a progress bar if stderr is a terminal; a log would keep every redraw.

    Args:
        line: terminal line of the bar, from 0: ranks that share a terminal use different ones.
    """
    if not sys.stderr.isatty():
        return items
    from tqdm.auto import tqdm

    bar: Iterable[T] = tqdm(
        items, desc=what, total=total, unit=unit or "it", position=line, leave=False
    )
    return bar
