"""``resume``: continues a run where it ended."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

import msgspec
from rich.text import Text

from jupyter_mntrain.command_line.parser import Parser, bounded_int
from jupyter_mntrain.model.errors import RefusedError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.checkpoint import MOST_STEPS
from jupyter_mntrain.plan.software.versions import unacknowledged
from jupyter_mntrain.recipe.stored import overrides_of
from jupyter_mntrain.show import formats
from jupyter_mntrain.verbs.launching.dry_run import dry_run_outcome
from jupyter_mntrain.verbs.launching.job_options import job_options
from jupyter_mntrain.verbs.launching.launch import (
    launch_built,
    refuse_start_options,
    shown_running,
    start_options,
    submitter,
)
from jupyter_mntrain.verbs.launching.planning import replanned
from jupyter_mntrain.verbs.launching.running_already import resumed_already
from jupyter_mntrain.verbs.launching.spec_builder import build_spec
from jupyter_mntrain.verbs.launching.stored_job import StoredJob
from jupyter_mntrain.verbs.verb import Context, Outcome, Verb, named_job

if TYPE_CHECKING:
    from jupyter_mntrain.cluster.launch.resume import ResumePlan


class ResumeVerb(Verb):
    takes_arguments = True

    def add_arguments(self, parser: Parser) -> None:
        parser.argument(
            "job",
            metavar="JOB",
            completes="job",
            help="any job of the run: its id, or how it begins",
        )
        parser.option(
            "--steps",
            type=bounded_int(1, MOST_STEPS),
            metavar="N",
            help="steps that the run is to make in all, as --set train.steps=N",
        )
        parser.option(
            "--from",
            dest="begin",
            metavar="STEP|best|PATH",
            help="start a new run from the checkpoint of this step, from the best one (lowest "
            "evaluation loss), or from the newest in this directory on the nodes; the old run "
            "keeps its checkpoints",
        )
        parser.flag(
            "--replan",
            help="choose schedule, microbatches, split and recomputation again where the recipe "
            "leaves them open, by the speeds that the job reached; default: keep them",
        )
        job_options(parser, has_target=False)
        start_options(parser)

    def run(self, context: Context, args: Namespace) -> Outcome:
        refuse_start_options(context, args)
        job = named_job(context, args, args.job)
        before = job.spec()
        if args.steps is not None:
            if overrides_of(before) is None:
                raise SpecError(
                    f"--steps {args.steps}: job {job.id} runs a script, which has no recipe",
                    fix="pass its arguments after --",
                )
            args.set = [*args.set, f"train.steps={args.steps}"]
        stored = StoredJob(unacknowledged(before), f"job {job.id}", context.directory)
        built = build_spec(context, args, stored)
        try:
            plan = job.plan_resume(built.spec, begin=_beginning(args.begin))
        except RefusedError as error:
            if error.kind is not Kind.STILL_RUNNING or args.dry_run or args.begin is not None:
                raise
            running = resumed_already(context, built, job, submitter(context))
            if running is None:
                raise
            return shown_running(context, args, running, is_resumed=True)
        built = built.with_spec(plan.spec)
        changes: tuple[str, ...] = ()
        if args.replan:
            built, changes = replanned(context, built, job)
        if args.dry_run:
            return dry_run_outcome(built, context.clock(), is_examined=not args.skip_doctor)
        context.screen.say(plan_text(plan, now_s=context.clock()))
        if args.replan:
            what = ", ".join(changes) or "the same as before"
            context.screen.say(Text(f"planned again: {what}", "dim"))
        return launch_built(context, args, built, notes=plan.notes, more=_data(plan))


def plan_text(plan: ResumePlan, *, now_s: float) -> Text:
    """Say what is resumed, from which step, and what was changed."""
    text = Text.assemble("resuming run ", (plan.run, "bold"))
    if plan.path is not None:
        text = Text.assemble("starting a new run with ", (plan.path, "bold"))
    elif plan.is_branch:
        text = Text.assemble("starting a new run with the checkpoint of run ", (plan.run, "bold"))
    if plan.job != plan.run and plan.path is None:
        text.append(f", job {plan.job},")
    if plan.step is not None:
        text.append(f" from step {formats.count(plan.step)}")
    if plan.checkpoint is not None:
        text.append(f" (saved {formats.duration(max(0.0, now_s - plan.checkpoint.saved_s))} ago)")
    if plan.changed:
        text.append(f"\n  changed: {', '.join(plan.changed)}", "dim")
    return text


def _beginning(given: str | None) -> int | str | None:
    return int(given) if given is not None and given.isdecimal() and given.isascii() else given


def _data(plan: ResumePlan) -> dict[str, Any]:
    return {
        "resumes": plan.job,
        "run": None if plan.is_branch else plan.run,
        "from_run": plan.run if plan.path is None else None,
        "from_path": plan.path,
        "from_step": plan.step,
        "changes": msgspec.to_builtins(plan.changes),
    }
