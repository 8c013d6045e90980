"""Step bars: what each rank computes and waits for in one step, as a row of characters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from jupyter_mntrain.model.records.plan import SpanKind, StepSpan, StepSpans
from jupyter_mntrain.show import formats

MOST_WIDTH: Final = 100
MOST_NAME: Final = 20
MOST_RANKS: Final = 16

MARKS: Final[dict[SpanKind, tuple[str, str, str]]] = {
    "F": ("█", "blue", "forward"),
    "B": ("▒", "blue", "backward"),
    "I": ("▒", "blue", "input gradient"),
    "W": ("░", "cyan", "weight gradient"),
    "update": ("▪", "", "optimizer"),
    "wait": ("·", "yellow", "wait"),
}
"""Character, color and word of what a rank is busy with; messages are not shown."""


class StepBars:
    """A row per rank, as wide as the terminal.

    Args:
        title: such as ``predicted``.
        ranks: for people, such as ``r0 node1``.
    """

    def __init__(self, title: str, spans: StepSpans, ranks: Sequence[str]) -> None:
        self._title = title
        self._spans = spans
        self._ranks = ranks

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        drawn = self._spans.ranks[:MOST_RANKS]
        names = [name[:MOST_NAME] for name in self._ranks[: len(drawn)]]
        longest = max(map(len, names), default=0)
        columns = min(MOST_WIDTH, options.max_width) - longest - 1
        if columns < 1 or self._spans.seconds <= 0:
            return
        took = formats.seconds(self._spans.seconds)
        yield Text.assemble("One step", (f"  {self._title}, {took}", "dim"))
        shown: set[SpanKind] = set()
        for name, spans in zip(names, drawn, strict=True):
            row = Text(name.ljust(longest + 1))
            for kind in _cells(spans, self._spans.seconds, columns):
                if kind is None:
                    row.append(" ")
                else:
                    shown.add(kind)
                    mark, color, _ = MARKS[kind]
                    row.append(mark, color)
            yield row
        if (more := len(self._spans.ranks) - len(drawn)) > 0:
            yield Text(f"… and {more} more ranks", "dim")
        words: dict[str, list[str]] = {}
        for kind, (mark, _, word) in MARKS.items():
            if kind in shown:
                words.setdefault(mark, []).append(word)
        legend = "  ".join(f"{mark} {', '.join(said)}" for mark, said in words.items())
        yield Text(legend, "dim")


def _cells(spans: Sequence[StepSpan], seconds: float, columns: int) -> list[SpanKind | None]:
    """Return what a rank spends most time on in each of ``columns`` equal parts of a step."""
    each = seconds / columns
    found: list[dict[SpanKind, float]] = [{} for _ in range(columns)]
    for span in spans:
        if span.kind not in MARKS:
            continue
        first = min(columns - 1, int(span.begin_s / each))
        for cell in range(first, columns):
            begin, end = cell * each, (cell + 1) * each
            if begin >= span.end_s:
                break
            part = min(end, span.end_s) - max(begin, span.begin_s)
            found[cell][span.kind] = found[cell].get(span.kind, 0.0) + part
    return [_longest(cell) for cell in found]


def _longest(shares: Mapping[SpanKind, float]) -> SpanKind | None:
    return max(shares.items(), key=lambda one: one[1])[0] if shares else None
