"""Acceptance in a terminal: each criterion with its verdict and figure, in 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from jupyter_mntrain.metrics.acceptance.acceptance_report import (
    AcceptanceReport,
    Criterion,
    Judgment,
    ScalingPoint,
)
from jupyter_mntrain.metrics.acceptance.efficiency import base_of, efficiency
from jupyter_mntrain.model.text.foreign import shown_line, shown_name
from jupyter_mntrain.show import formats
from jupyter_mntrain.show.tables._plain import folding, plain_table

MARKS: Final[Mapping[Judgment, str]] = {"passed": "✓", "failed": "✕", "not judged": "–"}
STYLES: Final[Mapping[Judgment, str]] = {
    "passed": "green",
    "failed": "red",
    "not judged": "yellow",
}
INDENT: Final = (0, 0, 0, 2)


def acceptance_table(report: AcceptanceReport) -> RenderableType:
    """Return the whole report."""
    parts: list[RenderableType] = [folding([Text(heading(report))]), Text()]
    parts += [criterion_text(one) for one in report.criteria]
    if report.observed.scaling:
        parts += [Text(), scaling_table(report.observed.scaling)]
    return Group(*parts, Text(), summary_text(report))


def heading(report: AcceptanceReport) -> str:
    """Return cluster, nodes and time in one line."""
    nodes = report.observed.nodes
    ranks = sum(one.ranks for one in nodes)
    named = ", ".join(shown_name(one.name) for one in nodes)
    return (
        f"Acceptance of cluster {shown_name(report.cluster)}: "
        f"{formats.plural(ranks, 'rank')} on {named or 'no node'}; "
        f"{formats.duration(report.took_s)}"
    )


def summary_text(report: AcceptanceReport) -> Text:
    """Return how many criteria passed, failed and were not judged."""
    text = Text()
    for judgment, style in STYLES.items():
        text.append(f"{MARKS[judgment]} {report.count(judgment)} {judgment}  ", style)
    if not report.is_whole:
        text.append("interrupted", "yellow")
    text.rstrip()
    return text


def criterion_text(one: Criterion) -> RenderableType:
    """Return a verdict with its figure and reason."""
    style = STYLES[one.judgment]
    title = Text.assemble((f"{MARKS[one.judgment]} ", style), (one.title, "bold"))
    said: list[RenderableType] = []
    if one.figure:
        said.append(Text(shown_line(one.figure)))
    if one.why:
        is_bad = one.judgment == "failed"
        said.append(Text(shown_line(one.why), "red" if is_bad else "dim"))
    return Group(folding([title]), Padding(folding(said), INDENT)) if said else folding([title])


def scaling_table(points: tuple[ScalingPoint, ...]) -> RenderableType:
    """Return tokens per second and efficiency by number of nodes, measured and predicted."""
    head = ("nodes", "ranks", "step", "tokens/s", "predicted", "efficiency", "predicted ")
    table = plain_table(*head, right=head)
    for row in scaling_rows(points):
        table.add_row(*row)
    return table


def scaling_rows(points: tuple[ScalingPoint, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the cells of the scaling table, row by row."""
    base = base_of(points)
    for one in points:
        found = None if base is None else efficiency(one, base)
        yield (
            str(len(one.nodes)),
            str(one.ranks),
            formats.seconds(one.step_s),
            formats.rate(one.tokens_per_s),
            formats.rate(one.predicted_tokens_per_s),
            formats.percent(found.measured if found else None, 0),
            formats.percent(found.predicted if found else None, 0),
        )
