"""Dry run of a launch: shows the command and environment of every node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from jupyter_mntrain.doctor.every import EVERY
from jupyter_mntrain.launch import NodeCommand
from jupyter_mntrain.model.records.job import JobSpec
from jupyter_mntrain.model.text.foreign import escaped_shell, shown_name
from jupyter_mntrain.model.text.secrets import HIDDEN, shown, shown_words
from jupyter_mntrain.show.problems import warning_texts
from jupyter_mntrain.show.safe_console import verbatim
from jupyter_mntrain.show.tables._plain import folding
from jupyter_mntrain.show.tables.doctor import doctor_table
from jupyter_mntrain.show.tables.plans.plan import plan_line
from jupyter_mntrain.verbs.verb import Outcome
from jupyter_mntrain.workload.built import Built, choice_text
from jupyter_mntrain.workload.hardware_notes import hardware_notes
from jupyter_mntrain.workload.memory_fit import memory_data, memory_text

FOUND = 1
"""Exit code: something stops a launch."""


def dry_run_outcome(built: Built, now_s: float, *, is_examined: bool = False) -> Outcome:
    """Return what a launch would do.

    Args:
        now_s: Unix time.
        is_examined: whether the doctor looks at the nodes, too, as before a launch.
    """
    built = built.on_its_nodes()
    spec, recipe = built.spec, built.workload.recipe
    commands = [_without_secrets(command, spec) for command in built.cluster.dry_run(spec)]
    data = {"spec": _data(spec), "commands": msgspec.to_builtins(commands)}
    data |= built.project_data
    shown = [dry_run_text(commands, spec, built.project_line)]
    sent = built.project.notes if built.project else ()
    notes = (*built.said, *built.left_out, *sent, *hardware_notes(built, now_s))
    if notes:
        data["warnings"] = msgspec.to_builtins(notes)
        shown += warning_texts(notes)
    if recipe is not None:
        expected = built.expected()
        memory = built.memory(expected)
        data["memory"] = memory_data(memory)
        first = [memory_text(memory, recipe)]
        fit = built.fit()
        if fit is not None and (line := choice_text(fit)) is not None:
            data["auto"] = fit.said
            first.insert(0, line)
        if expected is not None:
            data["plan"] = msgspec.to_builtins(expected.plan)
            first.append(plan_line(expected.plan, expected.schedule))
        shown.insert(0, Group(folding(first), Text()))
    if is_examined:
        found = built.cluster.doctor.examine(spec=spec, project=built.project, is_quick=True)
        data["doctor"] = msgspec.to_builtins(found)
        shown.append(doctor_table(found, EVERY))
        return Outcome(Group(*shown), data, exit_code=0 if found.can_launch else FOUND)
    return Outcome(Group(*shown), data)


def _without_secrets(command: NodeCommand, spec: JobSpec) -> NodeCommand:
    return msgspec.structs.replace(
        command,
        argv=shown_words(command.argv),
        environment=shown(command.environment, spec.from_environment),
    )


def _data(spec: JobSpec) -> Any:
    return msgspec.to_builtins(
        msgspec.structs.replace(
            spec,
            entry=shown_words(spec.entry),
            torchrun_arguments=shown_words(spec.torchrun_arguments),
            environment=shown(spec.environment, spec.from_environment),
        )
    )


def dry_run_text(
    commands: Sequence[NodeCommand], spec: JobSpec, project: str = ""
) -> RenderableType:
    """Return shell commands to paste on each node, by node rank; secrets are hidden."""
    parts: list[RenderableType] = []
    for command in commands:
        lines = [f"cd {escaped_shell(command.directory)}"]
        for name, value in sorted(command.environment.items()):
            lines.append(f"export {name}={escaped_shell(value)}")
        lines.append(" ".join(map(escaped_shell, command.argv)))
        heading = Text(f"# {shown_name(command.node)}", style="bold", no_wrap=True)
        parts += [heading, verbatim("\n".join(lines) + "\n"), Text()]
    files = ", ".join(filter(None, [*spec.files, project])) or "none"
    said = f"Files written there: {files}. Nothing was started."
    if any(HIDDEN in command.environment.values() for command in commands):
        said += f" {HIDDEN} stands for what is, or looks like, a secret."
    parts.append(Text(said, style="dim"))
    return Group(*parts)
