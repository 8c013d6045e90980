"""Checkpoint table: what a run has saved, and on which nodes."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from jupyter_mntrain.model.quantities import rough_size
from jupyter_mntrain.model.records.checkpoint import RunCheckpoint, RunCheckpoints
from jupyter_mntrain.show import formats
from jupyter_mntrain.show.tables._plain import plain_table

LOSS = "evaluation loss"


def checkpoint_table(listed: RunCheckpoints, *, now_s: float, program: str) -> RenderableType:
    """Return one row per checkpoint, newest first."""
    below = [
        Text(f"{node}: {directory}", style="dim", overflow="fold")
        for node, directory in listed.directories.items()
    ]
    below += [
        Text.assemble(("⚠ ", "yellow"), f"{node} does not answer: what it has is not known")
        for node in listed.silent
    ]
    if not listed.checkpoints:
        said = f"Run {listed.run} has no checkpoint on the nodes that answer."
        others = sum(listed.other_bytes.values())
        if others:
            said += f" {rough_size(others)} of other files are in its directories."
        return Group(Text(said), *below)
    has_losses = any(one.evaluation_loss is not None for one in listed.checkpoints)
    names = ["step", "saved", "size", "ranks", *([LOSS] if has_losses else []), "on", ""]
    table = plain_table(*names, right=("step", "size", "ranks", LOSS))
    for one in listed.checkpoints:
        age_s = max(0.0, now_s - one.saved_s)
        table.add_row(
            formats.count(one.step),
            f"{formats.duration(age_s)} ago",
            rough_size(one.size_bytes),
            str(one.world_size),
            *([_loss(one)] if has_losses else []),
            ", ".join(one.nodes),
            _state(one),
        )
    hint = f"resume from the newest: {program} resume {listed.run}"
    return Group(table, Text(), *below, Text(hint, style="dim"))


def _loss(one: RunCheckpoint) -> str:
    return "" if one.evaluation_loss is None else f"{one.evaluation_loss:.4f}"


def _state(one: RunCheckpoint) -> Text:
    text = Text("best, " if one.is_best else "")
    text.append("pinned, " if one.is_pinned else "")
    if one.is_whole:
        return text.append("whole", style="green")
    ranks = ", ".join(map(str, one.missing))
    on = f" ({' and '.join(one.missing_on)})" if one.missing_on else ""
    return text.append(f"incomplete: lacks rank {ranks}{on}", style="yellow")
