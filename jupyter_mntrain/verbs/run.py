"""Run: executes a parsed command, for the magic and the command line."""

from __future__ import annotations

import dataclasses
import sys

from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.failure.system_errors import system_errors_told
from jupyter_mntrain.show.terminal import QuietScreen
from jupyter_mntrain.verbs.command import Command
from jupyter_mntrain.verbs.launching.allocations.remembered import in_its_allocation
from jupyter_mntrain.verbs.verb import Context, Outcome


def run(command: Command, context: Context) -> Outcome:
    """Run a parsed command.

    Raises:
        MntrainError: the verb failed.
    """
    if context.cell is not None and not command.verb.takes_cell:
        raise SpecError(
            f"{command.verb.name} takes no cell",
            fix=f"write %mntrain {command.verb.name} with one %, or use %%mntrain launch",
        )
    if command.args.json:
        context = dataclasses.replace(context, screen=QuietScreen(context.screen))
    context = dataclasses.replace(context, arguments=command.arguments)
    if not command.args.json:
        _say_outdated(command, context)
    with system_errors_told():
        outcome = command.verb.run(context, in_its_allocation(context, command.verb, command.args))
    if command.args.json:  # of an error, stderr has its JSON and nothing else
        _say_outdated(command, context)
    return outcome


def _say_outdated(command: Command, context: Context) -> None:
    program = context.program.removeprefix("%")
    for what in dict.fromkeys(command.outdated):
        sys.stderr.write(f"{program}: {what}; the old form is accepted until 1.0\n")
