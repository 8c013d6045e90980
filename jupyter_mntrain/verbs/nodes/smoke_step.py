"""Smoke step of the doctor: starts the given job to see whether it works."""

from __future__ import annotations

from argparse import Namespace

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.doctor.check import DoctorReport
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.verbs.launching.launch import submitter
from jupyter_mntrain.verbs.verb import Context
from jupyter_mntrain.workload.built import Built


def deep_option(parser: Parser) -> None:
    parser.flag(
        "--deep",
        help="with --for, also start it if nothing was found that stops a launch: a recipe makes "
        "one step with random tokens, the ranks of a script import its modules and connect; "
        "nothing of it is kept, and busy GPUs are left alone",
    )


def refuse_nothing_to_try(context: Context, args: Namespace) -> None:
    """Refuse ``--deep`` without a job.

    Raises:
        SpecError: nothing is named.
    """
    if args.deep and not (args.wanted or args.module or context.cell is not None):
        raise SpecError(
            "--deep starts a job to see whether it works, and none was named",
            fix="name a recipe, a script or a job: --for recipe.toml --deep",
        )


def with_smoke_step(context: Context, built: Built, report: DoctorReport) -> DoctorReport:
    """Return the report with the result of starting the job."""
    with context.screen.progress() as progress:
        return built.cluster.trial.run(
            built.spec,
            report,
            project=built.project,
            submitted_by=submitter(context),
            progress=progress,
        )
