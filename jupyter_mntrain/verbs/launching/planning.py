"""``plan``: predicts a recipe's step on the nodes; starts nothing."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

import msgspec

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.metrics.trace.achieved import achieved
from jupyter_mntrain.metrics.trace.off_plan import measured_of
from jupyter_mntrain.metrics.trace.sent_messages import RecentMessages
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.plan.choosing.job_plan import JobPlan
from jupyter_mntrain.plan.measured_speeds import NOTHING, KnownSpeeds
from jupyter_mntrain.recipe.stored import PLANNED
from jupyter_mntrain.show import formats
from jupyter_mntrain.show.problems import warning_texts
from jupyter_mntrain.show.tables.plans.plan import plan_view
from jupyter_mntrain.show.tables.plans.step_bars import StepBars
from jupyter_mntrain.verbs.launching.job_options import job_options
from jupyter_mntrain.verbs.launching.spec_builder import build_spec
from jupyter_mntrain.verbs.verb import Context, Outcome, Verb, caught_up_history, named_job
from jupyter_mntrain.workload.built import Built

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Job

PREDICTED = "predicted"


class PlanVerb(Verb):
    takes_cell = True

    def add_arguments(self, parser: Parser) -> None:
        job_options(parser)
        parser.option(
            "--speeds-of",
            dest="of_job",
            metavar="JOB",
            completes="job",
            help="with the speeds of devices and links in this job; default target: its recipe",
        )
        parser.renamed("--from", to="--speeds-of")

    def run(self, context: Context, args: Namespace) -> Outcome:
        args.queue = True  # GPUs of other jobs may take part: nothing starts
        known, source = NOTHING, ""
        if args.of_job is not None:
            job = named_job(context, args, args.of_job)
            known, source = achieved_by(context, job), f", with the speeds of job {job.id}"
            if args.target is None and context.cell is None:
                args.target = job.id
        built = build_spec(context, args)
        for text in warning_texts(built.said):
            context.screen.say(text)
        found = built.plan(known=known, advises=True)
        picture = _draw(found) if context.screen.shows_pictures and not args.json else None
        bars = None if picture else StepBars(PREDICTED, found.spans, found.names)
        title = _title(built.workload.name, found) + source
        return Outcome(
            plan_view(
                found.plan,
                title,
                bars,
                program=context.program,
                ranks=found.first_pipeline,
                width=found.recipe.data_parallel.width,
            ),
            msgspec.to_builtins(found.plan),
            picture=picture,
            picture_text=f"{PREDICTED} step of {built.workload.name}",
        )


def achieved_by(context: Context, job: Job) -> KnownSpeeds:
    """Return the speeds that devices and links reached in a job.

    Raises:
        SpecError: it has no plan to compare with, or has measured nothing yet.
    """
    history = caught_up_history(context, job)
    plan, step_s = history.view.attempt.plan, job.summary().step_s
    if plan is None:
        cause = f"job {job.id} has no plan to compare its speeds with"
        raise SpecError(cause, fix="plan without --speeds-of, or launch its recipe again")
    if step_s is None:
        raise SpecError(f"job {job.id} has not made enough steps yet", fix="try again a bit later")
    sent = RecentMessages().of(history)
    return achieved(plan, measured_of(history, plan, step_s, sent, ()), job.id)


def replanned(context: Context, built: Built, job: Job) -> tuple[Built, tuple[str, ...]]:
    """Plan a resumed job again with the speeds that another reached; also return what changes.

    Raises:
        SpecError: nothing can be planned, or the other job has no speeds.
        RecipeError: the recipe cannot run on its ranks.
    """
    before = built.spec.chosen
    kept = {name: value for name, value in before.items() if name not in PLANNED}
    planned = built.plan(kept, achieved_by(context, job)).plan.chosen
    spec = msgspec.structs.replace(built.spec, chosen={**kept, **planned})
    changes = tuple(
        f"{name} {before.get(name, 'auto')} → {value}"
        for name, value in planned.items()
        if value != before.get(name)
    )
    return built.with_spec(spec), changes


def _title(name: str, found: JobPlan) -> str:
    recipe = found.recipe
    ranks = len(found.plan.ranks) * recipe.data_parallel.width
    nodes = ", ".join(dict.fromkeys(rank.node for rank in found.plan.ranks))
    return (
        f"Plan for {name}: {formats.plural(ranks, 'rank')} on {nodes}; "
        f"{formats.plural(recipe.train.batch_size, 'sequence')} of "
        f"{formats.count(recipe.data.sequence_length)} tokens per step"
    )


def _draw(found: JobPlan) -> bytes:
    # matplotlib takes half a second
    from jupyter_mntrain.show.picture.step_picture import SeenStep, step_picture

    return step_picture([SeenStep(PREDICTED, found.spans, found.names)])
