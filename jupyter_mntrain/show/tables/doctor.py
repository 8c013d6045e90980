"""Doctor's table: what each check found on each node, worst first, and how to fix it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from jupyter_mntrain.doctor.check import ORDER, Check, DoctorReport, Finding, Level
from jupyter_mntrain.model.text.foreign import shown_line, shown_name
from jupyter_mntrain.show import formats
from jupyter_mntrain.show.problems import problem_text
from jupyter_mntrain.show.tables._plain import folding, plain_table

MARKS: Final[Mapping[Level, tuple[str, str]]] = {
    "stops": ("✕", "red"),
    "slows": ("!", "yellow"),
    "unknown": ("?", "dim"),
    "passed": ("✓", "green"),
}

MOST_COLUMNS: Final = 4
"""As many nodes fit into 80 columns; of more, a line per finding is shown."""


def doctor_table(
    report: DoctorReport, checks: Sequence[Check], *, every: bool = False
) -> RenderableType:
    """Return the findings in three parts: the counts, the table, and each problem with its fix.

    Args:
        checks: in the order of the rows.
        every: also the checks that all nodes passed.
    """
    shown = [check for check in checks if every or _worst(report, check) not in (None, "passed")]
    shown = [check for check in shown if _worst(report, check) is not None]
    shown.sort(key=lambda check: ORDER.index(_worst(report, check) or "passed"))
    parts: list[RenderableType] = [_summary(report)]
    if shown:
        parts.append(_grid(report, shown) if len(report.nodes) <= MOST_COLUMNS else _list(report))
    problems = [_problem(one) for one in report.at("stops", "slows")]
    problems += [_problem(one) for one in _untold(report)]
    silent = [
        problem_text(problem, mark="?", style="yellow", before=f"{shown_name(node)}: ")
        for node, problem in report.silent.items()
    ]
    return Group(*parts, folding([*problems, *silent]))


def _summary(report: DoctorReport) -> RenderableType:
    """Return the counts of findings, and below them what passed."""
    counts = {level: len(report.at(level)) for level in ORDER}
    told: tuple[tuple[Level, str], ...] = (
        ("stops", "stop a launch" if counts["stops"] > 1 else "stops a launch"),
        ("slows", "may slow it down, or end it later"),
        ("unknown", "unknown, which do not count as passed"),
    )
    found = Text("   ").join(
        Text(f"{MARKS[level][0]} ", style=MARKS[level][1]).append(f"{counts[level]} {words}", "")
        for level, words in told
        if counts[level]
    )
    nodes = formats.plural(len(report.nodes), "node")
    passed = f"{counts['passed']} of {len(report.findings)} checks passed on {nodes}"
    return folding([*([found] if found else []), Text(f"{passed}, in {report.took_s:.1f} s.")])


def _untold(report: DoctorReport) -> Sequence[Finding]:
    """Return the unknown findings that have a fix, each once even if several nodes have it."""
    found = [one for one in report.at("unknown") if one.problem and one.problem.fix]
    return list({(one.check, one.problem): one for one in found}.values())


def _worst(report: DoctorReport, check: Check) -> Level | None:
    levels = [one.level for one in report.findings if one.check == check.id]
    return min(levels, key=ORDER.index) if levels else None


def _grid(report: DoctorReport, shown: Sequence[Check]) -> RenderableType:
    table = plain_table("check", *map(shown_name, report.nodes))
    for check in shown:
        cells = [_cell(report, check, node) for node in report.nodes]
        table.add_row(check.title, *cells)
    return table


def _cell(report: DoctorReport, check: Check, node: str) -> Text:
    """Return the worst finding of a check on a node."""
    found = [one for one in report.findings if (one.check, one.node) == (check.id, node)]
    if not found:
        return Text("—", style="dim")
    one = min(found, key=lambda finding: ORDER.index(finding.level))
    mark, style = MARKS[one.level]
    return Text(f"{mark} ", style=style).append(shown_line(one.said), style="default")


def _list(report: DoctorReport) -> RenderableType:
    table = plain_table("node", "check", "found")
    for one in report.at("stops", "slows", "unknown"):
        mark, style = MARKS[one.level]
        said = Text(f"{mark} ", style=style).append(shown_line(one.said), style="default")
        table.add_row(shown_name(one.node), one.check, said)
    return table


def _problem(one: Finding) -> Text:
    mark, style = MARKS[one.level]
    assert one.problem is not None  # noqa: S101 - all levels but passed have one
    return problem_text(one.problem, mark=mark, style=style)
