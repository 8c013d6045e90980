"""Table: every figure of every play, read at the same moments and held against the truth."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import isfinite
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tests.rulers.plays import PLAYS, Play, acts
from tests.rulers.reading import Scraped, Watched, read_all
from tests.rulers.truth import time_left, truth

MOMENTS = (0.05, 1 / 3, 0.5, 0.77, 1.0)
"""Shares of a job's steps at which it is read; at the end it is over."""

MOST_COUNTED, MOST_LEFT = 0.02, 0.10
"""Errors that are allowed: of counts and rates, and of the time left."""

LEFT_FROM = 1 / 3
"""Share of a job from which its time left is judged."""


class Row(NamedTuple):
    """One figure on one surface at one moment; ``None`` is n/a."""

    play: str
    moment: float
    figure: str
    surface: str
    shown: float | None
    true: float | None

    @property
    def error(self) -> float | None:
        """Relative; infinite where one of them is n/a and the other is not."""
        if self.shown is None or self.true is None:
            return None if self.shown == self.true else float("inf")
        if self.true == 0:
            return abs(self.shown)
        return self.shown / self.true - 1

    @property
    def limit(self) -> float:
        if self.figure == "time left":
            return MOST_LEFT
        return MOST_COUNTED

    @property
    def is_wrong(self) -> bool:
        return self.error is not None and abs(self.error) > self.limit


def measure(plays: Iterable[Play] = PLAYS) -> Iterator[Row]:
    for play in plays:
        with TemporaryDirectory() as directory:
            yield from _rows(play, Path(directory))


def _rows(play: Play, directory: Path) -> Iterator[Row]:
    watched = Watched(play, directory / "agents")
    scraped: Scraped | None = None
    most = sum(min(steps, play.total - begins) for steps, begins in play.attempts)
    at = {max(1, round(share * most)): share for share in MOMENTS}
    for number, played in enumerate(acts(play, directory / "ranks"), 1):
        scraped = scraped or Scraped(played)
        scraped.take()
        share = at.get(number)
        if share is None:
            continue
        watched.take(played)
        is_over = number == most
        told, recently = truth(played, is_over=is_over), truth(played, is_over=False)
        judges_left = share >= LEFT_FROM and not is_over and play.told is None
        for surface, figures in read_all(watched, scraped, played, is_over=is_over).items():
            for figure, shown in figures.items():
                # A trainer's own reports know no end, and each attempt counts for itself.
                true = (recently if surface == "Prometheus" else told).get(figure, ...)
                if figure == "time left":
                    if not judges_left or shown is None:
                        continue
                    true = time_left(played)
                elif figure == "tok/s, chart":
                    true = _charted(told, played)
                if true is not ...:
                    yield Row(play.name, share, figure, surface, shown, true)  # type: ignore[arg-type]


def _charted(told: dict[str, float | None], played: object) -> object:
    """A chart's rows add up to all steps but the first one, from which its time begins."""
    steps = played.done  # type: ignore[attr-defined]
    if len(steps) < 3 or steps[-1].attempt > 1:
        return ...
    each = 1 if played.play.stages[0] == played.play.stages[1] else 2  # type: ignore[attr-defined]
    tokens = sum(one.tokens for one in steps[1:]) / each
    if not isfinite(tokens):
        return ...
    return tokens / (steps[-1].ended_s - steps[0].ended_s)


def wrong(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.is_wrong]


def summarized(rows: Sequence[Row]) -> str:
    """A Markdown table: of each play and figure the largest error on any surface, at any moment."""
    worst: dict[tuple[str, str], Row] = {}
    for row in rows:
        key = (row.play, row.figure)
        before = worst.get(key)
        if before is None or abs(row.error or 0) > abs(before.error or 0):
            worst[key] = row
    lines = ["| play | figure | surface | at | shown | truth | error |", "| --- " * 7 + "|"]
    for row in worst.values():
        cells = (
            row.play,
            row.figure,
            row.surface,
            f"{100 * row.moment:.0f} %",
            _told(row.shown),
            _told(row.true),
            "–" if row.error is None else f"{100 * row.error:+.2f} %",
        )
        lines.append(f"| {' | '.join(cells)} |" + (" **above its limit**" if row.is_wrong else ""))
    return "\n".join(lines)


def _told(value: float | None) -> str:
    return "n/a" if value is None else f"{value:,.6g}"
