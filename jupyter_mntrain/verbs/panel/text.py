"""Panel as text: prints its rows, its checks and the command to run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.plan import Plan
from jupyter_mntrain.model.text.foreign import shown_line
from jupyter_mntrain.show import formats
from jupyter_mntrain.show.formats import LIVENESS_ICONS, LIVENESS_STYLES
from jupyter_mntrain.show.problems import problem_text
from jupyter_mntrain.show.tables._plain import folding, plain_table
from jupyter_mntrain.show.tables.plans.plan import (
    against_equal_split,
    compressed_words,
    foreseen,
    times,
    uncompressed_words,
)
from jupyter_mntrain.sources.registry import title_of
from jupyter_mntrain.verbs.panel.form import Form
from jupyter_mntrain.verbs.panel.node_row import FormRow, RowCheck
from jupyter_mntrain.verbs.panel.prediction import Prediction
from jupyter_mntrain.workload.memory_fit import RankMemory

if TYPE_CHECKING:
    from jupyter_mntrain.verbs.panel.panel import Panel

ICONS = {"passed": "✓", "unknown": "?", "slows": "⚠", "stops": "✕"}
STYLES = {"passed": "green", "unknown": "yellow", "slows": "yellow", "stops": "red"}


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
    lines: list[RenderableType] = [Text(reason, style="yellow")] if reason else []
    lines.append(Text.assemble(("Recipe ", "dim"), (panel.target.label, "bold"), f"  {panel.note}"))
    checks = [_check(row.name, check) for row in form.rows for check in row.checks]
    checks += [_check(None, check) for check in form.settings]
    checks += [_wrong(one.problem) for one in form.fields if one.problem is not None]
    checks += [_wrong(one.problem) for one in form.source if one.problem is not None]
    if form.source:
        given = ", ".join(f"{one.option.flag} {one.text}" for one in form.source if one.text)
        lines.append(Text(f"Nodes of {title_of(panel.choices.on)}: {given or 'one'}"))
    else:
        lines.append(table)
    return Group(*lines, folding([Text(), *checks, *_ending(panel, form)]))


def _node(row: FormRow) -> Text:
    icon = LIVENESS_ICONS.get(row.liveness, "?")
    return Text.assemble(
        (f"{icon} ", LIVENESS_STYLES.get(row.liveness, "")),
        (row.name, "bold"),
        f" {row.state}" if row.state else "",
        (f" {row.hardware}" if row.hardware else "", "dim"),
    )


def _check(name: str | None, check: RowCheck) -> Text:
    where = f"{name}: " if name else ""
    return Text.assemble((f"{ICONS[check.level]} ", STYLES[check.level]), f"{where}{check.text}")


def _wrong(problem: Problem) -> Text:
    return _check(None, RowCheck(level="stops", problem=problem))


def unknown_step(prediction: Prediction) -> str:
    """Return why there is no step time."""
    if prediction.unknown is None:
        return "the recipe cannot run on these ranks"
    why, where = prediction.unknown
    return {
        "model": f"{where} is not on this machine",
        "no-gpu": f"{where} computes on its CPU, whose speed is measured when the job starts",
        "peak": f"no data sheet of {where} is known here; it is measured when the job starts",
    }[why]


def pace(prediction: Prediction) -> str:
    """Return what limits the speed of a step."""
    step, memory = prediction.step, prediction.memory
    if step is None or step.rank is None or memory is None:
        return "the slowest link sets the pace"
    return f"rank {step.rank} on {memory[step.rank].node} sets the pace"


def plan_notes(plan: Plan) -> list[str]:
    """Return notes on a plan besides its step time."""
    gain = against_equal_split(plan)
    notes = [] if gain is None else [f"{times(gain)} the equal split"]
    notes += [f"{one}." for one in (compressed_words(plan), uncompressed_words(plan)) if one]
    notes.append(f"Bottleneck: {shown_line(plan.bottleneck)}.")
    if plan.guesses:
        notes.append(f"Some speeds are guesses: {shown_line(plan.guesses[0])}.")
    return notes


def memory_words(one: RankMemory) -> str:
    """Return what a rank needs, and what its GPU has."""
    of_gpu = f" of {formats.memory(one.gpu_bytes)}" if one.gpu_bytes is not None else ""
    return f"{formats.memory(one.total)}{of_gpu}"


def _predicted(prediction: Prediction) -> list[Text]:
    step = prediction.step
    lines = [f"Step time n/a: {unknown_step(prediction)}"]
    if step is not None:
        least, most = formats.seconds(step.seconds), formats.rate(step.tokens_per_s)
        lines = [f"Step time at least {least}, at most {most} tok/s; {pace(prediction)}"]
    if prediction.plan is not None:
        plan = prediction.plan.plan
        rate = formats.rate(plan.tokens_per_s)
        what = foreseen(plan).capitalize()
        lines = [f"{what} step {formats.seconds(plan.step_s)}, {rate} tok/s"]
        lines += plan_notes(plan)
    lines += [
        f"Memory of rank {one.rank} on {one.node}: {memory_words(one)}"
        for one in prediction.memory or ()
    ]
    if prediction.ranks > 1:
        lines.append(f"Schedule's own bubble {formats.percent(prediction.bubble)}")
    return [Text(line, style="dim") for line in lines]


def _ending(panel: Panel, form: Form) -> list[RenderableType]:
    lines: list[RenderableType] = [Text()]
    if form.doctor:
        lines.append(Text(form.doctor, style="dim"))
    if form.prediction is not None:
        lines += _predicted(form.prediction)
    if panel.started is not None:
        job, command = panel.started
        return [*lines, Text(f"Started as {job}:"), Text(command, style="bold")]
    if form.blocked:
        return [*lines, problem_text(form.blocked, before="cannot launch: ")]
    if panel.resume is not None:
        lines.append(Text(f"{panel.resume.label}: {panel.resume.text}"))
    lines += [Text(form.chosen, style="dim")] if form.chosen else []
    return [*lines, Text(f"{form.summary} Launch it:"), Text(panel.command(form), style="bold")]
