"""``doctor``: looks for what keeps nodes from training, before it costs anything."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import msgspec
from rich.text import Text

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.doctor.every import EVERY
from jupyter_mntrain.doctor.workload.asked_paths import (
    question_of_job,
    question_of_recipe,
    question_of_script,
)
from jupyter_mntrain.launch.files.names import parse_large_name
from jupyter_mntrain.model.records.doctor.machine import MachineQuestion
from jupyter_mntrain.show.tables.doctor import doctor_table
from jupyter_mntrain.verbs.context import Context
from jupyter_mntrain.verbs.find import joined_cluster, named_job
from jupyter_mntrain.verbs.nodes.deep_step import deep_option, job_to_try, with_deep_step
from jupyter_mntrain.verbs.verb import Outcome, Verb
from jupyter_mntrain.workload.workload import from_path

FOUND = 1
"""Exit code: something stops a launch."""


class DoctorVerb(Verb):
    name = "doctor"
    help = "look for what keeps nodes from training, with the fix"

    def add_arguments(self, parser: Parser) -> None:
        parser.argument(
            "nodes", nargs="*", metavar="NODE", completes="node", help="only these (default: all)"
        )
        parser.option(
            "--for",
            dest="wanted",
            metavar="FILE|JOB",
            help="also look for what this recipe, script or job reads and writes on the nodes",
        )
        parser.option("--python", metavar="PYTHON", help="the interpreter that it shall run with")
        parser.flag(
            "--apply",
            help="mend what needs no root and changes nothing that others use: push to a node the "
            "model or data that it lacks",
        )
        deep_option(parser)
        parser.flag("--all", "-a", help="list the checks that all nodes passed, too")

    def run(self, context: Context, args: Namespace) -> Outcome:
        cluster, asked = joined_cluster(context, args), _asked(context, args)
        built = job_to_try(context, args)
        used = () if built is None else built.spec.participants
        with context.screen.progress() as progress:
            report = cluster.doctor.examine(
                args.nodes, asked=asked, participants=used, progress=progress
            )
        remedies = [one.remedy for one in report.findings if one.remedy] if args.apply else []
        for remedy in remedies:
            context.screen.say(Text(f"{context.program} {remedy.command}", style="dim"))
            name = parse_large_name(remedy.push)
            with context.screen.progress() as progress:
                cluster.files.push(name, [remedy.node], source=remedy.source, progress=progress)
        if remedies:
            with context.screen.progress() as progress:
                report = cluster.doctor.examine(
                    args.nodes, asked=asked, participants=used, progress=progress
                )
        if built is not None:
            report = with_deep_step(context, built, report, asked)
        return Outcome(
            doctor_table(report, EVERY, every=args.all),
            msgspec.to_builtins(report),
            exit_code=0 if report.can_launch else FOUND,
        )


def _asked(context: Context, args: Namespace) -> MachineQuestion:
    """What is asked besides the machine itself.

    Raises:
        SpecError, RecipeError: there is no such file, or it is no recipe and no script.
        JobNotFoundError: neither is there such a job.
    """
    if args.wanted is None:
        return MachineQuestion(python=args.python)
    path = context.directory / Path(args.wanted).expanduser()
    if path.exists() or path.suffix in (".toml", ".py"):
        workload = from_path(path)
        if workload.recipe is None:
            (text,) = workload.files.values()
            return question_of_script(text, path.parent, args.python)
        return question_of_recipe(workload.recipe, args.python)
    asked = question_of_job(named_job(context, args, args.wanted).spec())
    return asked if args.python is None else msgspec.structs.replace(asked, python=args.python)
