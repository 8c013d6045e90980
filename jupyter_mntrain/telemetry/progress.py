"""Progress of long work inside a rank, written a few times a second at most."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Protocol, TypeVar

from jupyter_mntrain.model import tunables

T = TypeVar("T")

EVERY_S = tunables.seconds("telemetry.progress_interval_s")


class ProgressWriter(Protocol):
    """Takes how far a piece of work is; :meth:`Recorder.progress` is one."""

    def __call__(
        self, what: str, done: float, total: float | None = None, unit: str = ""
    ) -> None: ...


def unwatched(what: str, done: float, total: float | None = None, unit: str = "") -> None:
    """For work that nobody watches."""


class Tally:
    """Adds up what comes piece by piece, and says each sum.

    Args:
        progress: told at once that nothing is done yet.
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
        """All there was is done, be it more or less than was thought."""
        self._total = self._done
        self._say()

    def _say(self) -> None:
        self._progress(self._what, self._done, self._total, self._unit)


class Pace:
    """Lets pass, of each thing, the first word, the last, and one now and then in between.

    Args:
        stopwatch: seconds from an arbitrary start.
    """

    def __init__(self, stopwatch: Callable[[], float]) -> None:
        self._stopwatch = stopwatch
        self._said: dict[str, tuple[float, bool]] = {}
        """When each thing was last spoken of, and whether as over. Only the newest are kept."""

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
    """The items, each counted once the next one is asked for."""
    tally = Tally(progress, what, total, unit)
    try:
        for item in items:
            yield item
            tally.add(1)
    finally:
        tally.end()


def drawn(items: Iterable[T], what: str, total: float | None, unit: str, line: int) -> Iterable[T]:
    """The items, with a bar where a person looks; none in a log, where every redraw stays.

    Args:
        line: of the terminal, counted from 0: ranks that share one each have their own.
    """
    if not sys.stderr.isatty():
        return items
    from tqdm.auto import tqdm

    bar: Iterable[T] = tqdm(
        items, desc=what, total=total, unit=unit or "it", position=line, leave=False
    )
    return bar


def length(items: Iterable[object]) -> int | None:
    """How many there are, if they know it."""
    return len(items) if isinstance(items, Sized) else None
