"""Progress: reports how much of a piece of work is done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol


class Progress(Protocol):
    """Receives reports of progress."""

    def report(self, what: str, done: int, total: int | None) -> None:
        """Report progress. Called often and from any thread; returns at once.

        Args:
            what: for people, like "measuring node1 → node2". A new ``what`` is a new piece.
            total: ``None`` if unknown.
        """


class _Silent:
    def report(self, what: str, done: int, total: int | None) -> None:
        """Do nothing."""


SILENT: Final[Progress] = _Silent()


@dataclass
class Count:
    """Counts the steps of one piece of work.

    Args:
        progress: receives 0 at once.
    """

    progress: Progress
    what: str
    total: int
    _done: int = 0

    def __post_init__(self) -> None:
        self.progress.report(self.what, 0, self.total)

    def more(self, steps: int = 1) -> None:
        """Add to the number of steps that are done."""
        self._done += steps
        self.progress.report(self.what, self._done, self.total)


class PartProgress:
    """Reports the progress of one part of longer work, prefixed with the part's number.

    Args:
        progress: receives them.
        parts: how many there are; :meth:`begin` counts them.
    """

    def __init__(self, progress: Progress, parts: int) -> None:
        self._progress, self._parts, self._number = progress, parts, 0

    def begin(self) -> None:
        """Start the next part."""
        self._number += 1

    def report(self, what: str, done: int, total: int | None) -> None:
        self._progress.report(f"{self._number} of {self._parts}: {what}", done, total)
