"""``generate``: continues a text with a checkpoint of a job."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

import msgspec
from rich.console import Group
from rich.text import Text

from jupyter_mntrain.command_line.parser import Parser, bounded_float, bounded_int
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.checkpoint import BEST, WantedStep
from jupyter_mntrain.model.records.job import TRAINER, JobSpec, JobView, Participant
from jupyter_mntrain.plan.resume import step_of
from jupyter_mntrain.recipe.stored import RECIPE_FILE, chosen_words
from jupyter_mntrain.show.problems import problem_text
from jupyter_mntrain.verbs.launching.answering.written_model import refuse_script
from jupyter_mntrain.verbs.launching.launch import submitter
from jupyter_mntrain.verbs.verb import Context, Outcome, Verb, find_job, wanted_step

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Job

MOST_TOKENS = 1_000_000
GENERATOR = f"{TRAINER}.answering.generate"
READ_WITHIN_S = 10.0
"""Timeout for reading the text of `generate` after its job has ended."""


class GenerateVerb(Verb):
    def add_arguments(self, parser: Parser) -> None:
        parser.argument("job", metavar="JOB", completes="job", help="its id, or how it begins")
        parser.argument("prompt", metavar="TEXT", help="the prompt, in quotes")
        step_option(parser)
        parser.flag("--chat", help="TEXT is the user's turn in a chat")
        parser.option(
            "--tokens",
            type=bounded_int(1, MOST_TOKENS),
            default=100,
            metavar="N",
            help="generate at most N new tokens; default: 100",
        )
        parser.option(
            "--temperature",
            type=bounded_float(0, 10),
            default=0.8,
            metavar="T",
            help="0 always picks the likeliest token; default: 0.8",
        )
        parser.option(
            "--seed",
            type=bounded_int(0, 2**32 - 1),
            default=0,
            metavar="N",
            help="random seed; default: 0",
        )
        parser.flag(
            "--mixed-versions",
            help="start although versions of torch, Python or others differ between nodes",
        )

    def run(self, context: Context, args: Namespace) -> Outcome:
        if not args.prompt.strip():
            raise SpecError("the prompt is empty", fix='give one: "Once upon a time"')
        job = find_job(context, args)
        refuse_script(context, args, job, "chat")
        spec = generating_spec(job.view(), job.spec(), args, step_words(job, args.step))
        cluster = context.cluster(args)
        with context.screen.progress() as progress:
            made = cluster.launch(spec, submitted_by=submitter(context), progress=progress)
            with made.ending_with_driver():
                view = made.wait(progress=progress)
            texts = made.wait_for_history(READ_WITHIN_S).texts
        if not texts:
            return _nothing(context, made, view)
        said = texts[-1]
        data = msgspec.to_builtins(said) | {"job_id": job.id}
        heading = Text(f"{job.id}, step {said.step}", style="dim")
        shown = Text.assemble((f"{said.prompt}", "bold"), "\n" if args.chat else "", said.text)
        return Outcome(Group(heading, shown), data, job=job)


def step_option(parser: Parser) -> None:
    """Add the option that selects the checkpoint."""
    parser.option(
        "--step",
        type=wanted_step,
        metavar="STEP|best",
        help="the checkpoint of this step, or with the lowest evaluation loss; default: the newest",
    )


def step_words(job: Job, wanted: WantedStep | None) -> tuple[str, ...]:
    """Return the arguments that tell ranks which checkpoint to load; none for the newest.

    Raises:
        RefusedError: it is the best one, and none has an evaluation loss.
    """
    if wanted is None:
        return ()
    step = step_of(job.checkpoints(), wanted) if wanted == BEST else wanted
    return ("--step", str(step))


def generating_spec(
    view: JobView, spec: JobSpec, args: Namespace, which: tuple[str, ...] = ()
) -> JobSpec:
    """Return a job that generates, next to another job; see :func:`spec_beside`.

    Args:
        which: checkpoint, from :func:`step_words`.
    """
    wishes = ["--tokens", str(args.tokens), "--temperature", str(args.temperature)]
    wishes += ["--seed", str(args.seed), *(["--chat"] if args.chat else []), *which]
    entry = (GENERATOR, *changed_words(spec), *wishes, "--", view.run, RECIPE_FILE, args.prompt)
    return spec_beside(view, spec, entry, "generate", mixed_versions=args.mixed_versions)


def changed_words(spec: JobSpec) -> tuple[str, ...]:
    """Return the arguments for what a job changes in its recipe."""
    return (*chosen_words(spec), *spec.entry[3:])


def spec_beside(
    view: JobView, spec: JobSpec, entry: tuple[str, ...], what: str, *, mixed_versions: bool
) -> JobSpec:
    """Return a job with a CPU process on each node of another job, whose GPUs may be in use.

    Args:
        spec: of that job, which runs the built-in trainer.
        entry: module of ours and its arguments.
        what: it does.
    """
    return JobSpec(
        entry=("-m", *entry),
        participants=tuple(
            Participant(node=place.node_id, nproc=1, interface=place.interface)
            for place in view.attempt.placements
        ),
        name=f"{what} {view.job_id}",
        files={RECIPE_FILE: spec.files[RECIPE_FILE]},
        python=spec.python,
        environment=spec.environment,
        from_environment=spec.from_environment,
        mixed_versions=mixed_versions,
    )


def _nothing(context: Context, job: Job, view: JobView) -> Outcome:
    problem = view.problem or Problem(kind=Kind.ERROR, cause=f"{job.id} is {view.state}")
    text = problem_text(problem, before="generation failed: ")
    text.append(f"\nIts log: {context.program} logs {job.id}", "dim")
    data = {"job_id": job.id, "state": view.state, "problem": msgspec.to_builtins(view.problem)}
    return Outcome(text, data, exit_code=1, job=job)
