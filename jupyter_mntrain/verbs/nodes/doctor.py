"""``doctor``: finds what keeps nodes from training before it costs time."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING

import msgspec
from rich.text import Text

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.doctor.check import DoctorReport
from jupyter_mntrain.doctor.every import EVERY
from jupyter_mntrain.launch.files.names import parse_large_name
from jupyter_mntrain.model.records.doctor.machine import MachineQuestion
from jupyter_mntrain.show.tables.doctor import doctor_table
from jupyter_mntrain.verbs.launching.dry_run import FOUND
from jupyter_mntrain.verbs.launching.foreign_job import agreement_option, ask_about_job_file
from jupyter_mntrain.verbs.launching.job_options import job_options
from jupyter_mntrain.verbs.launching.spec_builder import build_spec
from jupyter_mntrain.verbs.nodes.smoke_step import (
    deep_option,
    refuse_nothing_to_try,
    with_smoke_step,
)
from jupyter_mntrain.verbs.verb import Context, Outcome, Verb, joined_cluster
from jupyter_mntrain.workload.built import Built

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Cluster

_OF_JOB = ("wanted", "module", "member", "head", "port", "env", "workdir", "project", "file")
"""Options that say that a job is meant, and not any that may run there."""


class DoctorVerb(Verb):
    shows_cluster = True
    takes_cell = True

    def add_arguments(self, parser: Parser) -> None:
        parser.argument(
            "nodes",
            nargs="*",
            metavar="NODE[:N[:IFACE]]",
            completes="node",
            help="only these, as members of a launch (default: all)",
        )
        parser.option(
            "--for",
            dest="wanted",
            metavar="FILE|MODULE|JOB",
            completes="recipe",
            help="check a launch of this recipe, script, module or job with these options: what "
            "it would use, read and write on the nodes; arguments of a script go after --",
        )
        parser.flag(
            "--apply",
            help="fix what needs no root and affects nobody else: push a missing model or data "
            "to a node",
        )
        deep_option(parser)
        agreement_option(parser)
        parser.flag("--all", "-a", help="list the checks that all nodes passed, too")
        job_options(parser, has_target=False)

    def run(self, context: Context, args: Namespace) -> Outcome:
        cluster = joined_cluster(context, args)
        refuse_nothing_to_try(context, args)
        if args.deep and context.cell is None:
            ask_about_job_file(context, args, args.wanted)
        built = _job(context, args)
        look = _look(args, cluster, built)
        with context.screen.progress() as progress:
            report = look(progress=progress)
        remedies = [one.remedy for one in report.findings if one.remedy] if args.apply else []
        for remedy in remedies:
            context.screen.say(Text(f"{context.program} {remedy.command}", style="dim"))
            name = parse_large_name(remedy.push)
            with context.screen.progress() as progress:
                cluster.files.push(name, [remedy.node], source=remedy.source, progress=progress)
        if remedies:
            with context.screen.progress() as progress:
                report = look(progress=progress)
        if built is not None and args.deep:
            report = with_smoke_step(context, built, report)
        return Outcome(
            doctor_table(report, EVERY, every=args.all),
            msgspec.to_builtins(report),
            exit_code=0 if report.can_launch else FOUND,
        )


def _job(context: Context, args: Namespace) -> Built | None:
    """Return the launch that the options describe; ``None`` = any launch on the nodes.

    Raises:
        SpecError, RecipeError, NodeError, JobNotFoundError: as a launch with them.
    """
    if args.wanted and _is_module(context, args.wanted):
        args.module, args.wanted = args.wanted, None
    is_job = any(getattr(args, name) for name in _OF_JOB) or context.cell is not None
    if not is_job and not any(":" in node for node in args.nodes):
        return None
    args.target, args.member = args.wanted, [*args.nodes, *args.member]
    return build_spec(context, args, needs_target=False, asks_hub=False)  # it does so itself


def _is_module(context: Context, wanted: str) -> bool:
    """Whether this is the name of a module, like ``pkg.train``, and not a file here."""
    first, *inner = wanted.split(".")
    is_name = first.isidentifier() and all(one.isidentifier() for one in inner)
    is_file = PurePath(wanted).suffix in (".py", ".toml") or (context.directory / wanted).is_file()
    return is_name and bool(inner) and not is_file


def _look(args: Namespace, cluster: Cluster, built: Built | None) -> Callable[..., DoctorReport]:
    """Return a function that examines a launch, or nodes."""
    if built is not None:
        return partial(cluster.doctor.examine, spec=built.spec, project=built.project)
    asked = MachineQuestion(python=args.python)
    return partial(cluster.doctor.examine, args.nodes, asked=asked)
