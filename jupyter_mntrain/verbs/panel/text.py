"""Panel as text: prints its rows, its checks and the command to run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from jupyter_mntrain.show import formats
from jupyter_mntrain.show.formats import LIVENESS_ICONS, LIVENESS_STYLES
from jupyter_mntrain.show.problems import problem_text
from jupyter_mntrain.show.tables._plain import folding, plain_table
from jupyter_mntrain.verbs.panel.checks.check import Check
from jupyter_mntrain.verbs.panel.form import Form
from jupyter_mntrain.verbs.panel.node_row import FormRow

if TYPE_CHECKING:
    from jupyter_mntrain.verbs.panel.panel import Panel

ICONS = {"passed": "✓", "warning": "⚠", "error": "✕"}
STYLES = {"passed": "green", "warning": "yellow", "error": "red"}


def form_text(panel: Panel, form: Form, reason: str) -> RenderableType:
    """Render a panel as text.

    Args:
        reason: why it is shown as text.
    """
    table = plain_table("use", "node", "GPUs", "interface for training", "head")
    for row in form.rows:
        table.add_row(
            "yes" if row.takes_part else "no",
            _node(row),
            f"{row.gpus or row.gpu_default} ({row.gpu_hint})" if row.gpu_hint else formats.ABSENT,
            next((label for label, name in row.interfaces if name == row.interface), "auto"),
            "head" if row.is_head else "",
        )
    lines = [Text(reason, style="yellow")] if reason else []
    lines.append(Text.assemble(("Recipe ", "dim"), (panel.target.label, "bold"), f"  {panel.note}"))
    checks = [_check(row.name, check) for row in form.rows for check in row.checks]
    checks += [_check(None, check) for check in form.settings]
    return Group(*lines, table, folding([Text(), *checks, *_ending(panel, form)]))


def _node(row: FormRow) -> Text:
    icon = LIVENESS_ICONS.get(row.liveness, "?")
    return Text.assemble(
        (f"{icon} ", LIVENESS_STYLES.get(row.liveness, "")),
        (row.name, "bold"),
        f" {row.state}" if row.state else "",
        (f" {row.hardware}" if row.hardware else "", "dim"),
    )


def _check(name: str | None, check: Check) -> Text:
    where = f"{name}: " if name else ""
    return Text.assemble((f"{ICONS[check.level]} ", STYLES[check.level]), f"{where}{check.text}")


def _ending(panel: Panel, form: Form) -> list[RenderableType]:
    lines: list[RenderableType] = [Text()]
    if form.prediction is not None and form.prediction.ranks > 1:
        lines.append(
            Text(f"Schedule's own bubble {formats.percent(form.prediction.bubble)}", style="dim")
        )
    if form.blocked:
        return [*lines, problem_text(form.blocked, before="cannot launch: ")]
    return [*lines, Text(f"{form.summary} Launch it:"), Text(panel.command(form), style="bold")]
