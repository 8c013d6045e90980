"""Progress: says how far a piece of work is, to whatever draws it."""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass
class Count:
    """One piece of work, counted.

    Args:
        progress: told at once that nothing is done yet.
    """

    progress: Progress
    what: str
    total: int
    _done: int = 0

    def __post_init__(self) -> None:
        self.progress.report(self.what, 0, self.total)

    def one(self) -> None:
        """One more is done."""
        self._done += 1
        self.progress.report(self.what, self._done, self.total)
