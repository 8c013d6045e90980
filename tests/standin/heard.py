"""Progress that stores all reports."""

from __future__ import annotations

from itertools import groupby


class Heard:
    """Everything reported, in order."""

    def __init__(self) -> None:
        self.reports: list[tuple[str, int, int | None]] = []

    def report(self, what: str, done: int, total: int | None) -> None:
        self.reports.append((what, done, total))

    def pieces(self) -> dict[str, list[tuple[int, int | None]]]:
        """Of each piece of work what was said, once each, in order."""
        return {
            what: [said for said, _ in groupby((done, total) for _, done, total in reports)]
            for what, reports in groupby(self.reports, key=lambda one: one[0])
        }
