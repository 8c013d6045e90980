"""Progress: says how far a piece of work is, to whatever draws it."""

from __future__ import annotations

from typing import Final, Protocol


class Progress(Protocol):
    """Hears how far a piece of work is."""

    def report(self, what: str, done: int, total: int | None) -> None:
        """Called often and from any thread; returns at once.

        Args:
            what: for people: "measuring node1 → node2". Another ``what`` is the next piece.
            total: ``None`` if nobody knows how much it will be.
        """


class _Silent:
    def report(self, what: str, done: int, total: int | None) -> None:
        """Nobody listens."""


SILENT: Final[Progress] = _Silent()


class Count:
    """One piece of work, counted.

    Args:
        progress: told at once that nothing is done yet.
    """

    def __init__(self, progress: Progress, what: str, total: int) -> None:
        self._progress = progress
        self._what = what
        self._total = total
        self._done = 0
        progress.report(what, 0, total)

    def one(self) -> None:
        """One more is done."""
        self._done += 1
        self._progress.report(self._what, self._done, self._total)
