"""Deep step of the doctor: the job that it starts, made from what the verb was given."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.doctor.finding import DoctorReport
from jupyter_mntrain.doctor.workload.asked_paths import question_of_script
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.records.doctor.machine import MachineQuestion
from jupyter_mntrain.model.records.job import JobSpec
from jupyter_mntrain.verbs.context import Context
from jupyter_mntrain.verbs.launching.job_options import job_options
from jupyter_mntrain.verbs.launching.launch import submitter
from jupyter_mntrain.verbs.launching.spec_builder import build_spec
from jupyter_mntrain.workload.built import Built


def deep_option(parser: Parser) -> None:
    parser.flag(
        "--deep",
        help="with --for, also start it if nothing was found that stops a launch: a recipe makes "
        "one step with random tokens, the ranks of a script import its modules and meet; nothing "
        "of it stays, and busy GPUs are left alone",
    )


def job_to_try(context: Context, args: Namespace) -> Built | None:
    """What a launch of ``--for`` on the named nodes would start; ``None`` without ``--deep``.

    Raises:
        SpecError: there is no ``--for``; or as for a launch.
        RecipeError, NodeError, RefusedError: as for a launch.
    """
    if not args.deep:
        return None
    if args.wanted is None:
        raise SpecError(
            "--deep starts a job to see whether it works, and none was named",
            fix="name a recipe, a script or a job: --for recipe.toml --deep",
        )
    parser = Parser("launch")
    job_options(parser)
    words = [args.wanted, *(word for node in args.nodes for word in ("--member", node))]
    words += ["--python", args.python] if args.python else []
    common = {name: getattr(args, name) for name in ("cluster", "agent", "json")}
    return build_spec(context, parser.parse(words, Namespace(**common)))


def with_deep_step(
    context: Context, built: Built, report: DoctorReport, asked: MachineQuestion
) -> DoctorReport:
    """The report with what became of the job when it was started."""
    with context.screen.progress() as progress:
        return built.cluster.trial.run(
            built.spec,
            report,
            modules=asked.modules or _imports(built.spec),
            submitted_by=submitter(context),
            progress=progress,
        )


def _imports(spec: JobSpec) -> tuple[str, ...]:
    """Modules that the script of a stored job imports, as far as they are not its own."""
    text = spec.files.get(spec.entry[0])
    if text is None or spec.project or spec.workdir:
        return ()
    own = {Path(name).parts[0].removesuffix(".py") for name in spec.files}
    return tuple(one for one in question_of_script(text, Path()).modules if one not in own)
