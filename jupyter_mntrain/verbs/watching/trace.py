"""``trace``: draws a recorded step of a job, or writes it for Perfetto."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from rich.console import Group
from rich.text import Text

from jupyter_mntrain.command_line.parser import Parser, bounded_int
from jupyter_mntrain.metrics.trace.job_steps import (
    not_recorded,
    pipeline_names,
    predicted_step,
    rank_names,
)
from jupyter_mntrain.metrics.trace.recorded import recorded_steps, spans_of
from jupyter_mntrain.model.errors import MntrainError, SpecError
from jupyter_mntrain.model.records.plan import StepSpans
from jupyter_mntrain.model.whereabouts import in_home
from jupyter_mntrain.show import formats
from jupyter_mntrain.show.exports.chrome_trace import chrome_trace
from jupyter_mntrain.show.tables.plans.step_bars import StepBars
from jupyter_mntrain.verbs.new_file import file_path, force_flag, output_option
from jupyter_mntrain.verbs.verb import (
    Context,
    Outcome,
    Verb,
    caught_up_history,
    find_job,
    job_argument,
)
from jupyter_mntrain.verbs.watching.picture_file import write_picture

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Job
    from jupyter_mntrain.metrics.history import JobHistory

LAST_STEP: Final = 1_000_000_000
PREDICTED: Final = "predicted"
KINDS: Final = (".json", ".png")


class Titled(NamedTuple):
    """A step to show: its title, and its ranks' names."""

    title: str
    spans: StepSpans
    ranks: tuple[str, ...]


class TraceVerb(Verb):
    def add_arguments(self, parser: Parser) -> None:
        job_argument(parser)
        parser.option(
            "--step",
            metavar="N",
            type=bounded_int(1, LAST_STEP),
            help="which of the recorded steps; default: the newest",
        )
        told = "write it: .json as a trace for ui.perfetto.dev, .png as a picture"
        output_option(parser, help=told)
        force_flag(parser)

    def run(self, context: Context, args: Namespace) -> Outcome:
        path = _path(context, args.output, may_replace=args.force)
        job = find_job(context, args)
        history = caught_up_history(context, job)
        recorded, known = _find(history, args.step)
        names = rank_names(history.view)
        title = f"step {formats.count(recorded.step)}"
        steps = [Titled(title, recorded, names)]
        if (predicted := _predicted(job)) is not None:
            steps.insert(0, Titled(PREDICTED, predicted, pipeline_names(history)))
        data = {
            "job_id": job.id,
            "recorded_steps": known,
            "file": str(path) if path else None,
            "recorded": msgspec.to_builtins(recorded),
            "predicted": msgspec.to_builtins(predicted),
        }
        if path is not None:
            _write(path, steps)
            return Outcome(Text(f"wrote {path}{_hint(path)}"), data, job=job)
        if context.screen.shows_pictures and not args.json:
            words = f"{title} of {job.id}"
            return Outcome(data=data, job=job, picture=_draw(steps), picture_text=words)
        bars = [part for one in steps for part in (StepBars(*one), Text())]
        more = Text(f"recorded steps: {', '.join(map(formats.count, known))}", "dim")
        return Outcome(Group(*bars, more), data, job=job)


def _predicted(job: Job) -> StepSpans | None:
    """Return the step that the job's plan predicted; ``None`` if it has none, or cannot be read."""
    try:
        return predicted_step(job.view(), job.spec)
    except MntrainError:
        return None  # what was recorded can be seen all the same


def _find(history: JobHistory, number: int | None) -> tuple[StepSpans, list[int]]:
    """Return a recorded step, and the numbers of all recorded steps.

    Raises:
        SpecError: there is no such step.
    """
    known = recorded_steps(history)
    view = history.view
    if not known:
        raise not_recorded(view)
    if number is not None and number not in known:
        listed = ", ".join(map(formats.count, known))
        cause = f"step {formats.count(number)} of {view.job_id} is not recorded, or not kept"
        raise SpecError(cause, fix=f"use one of {listed}")
    return spans_of(known[max(known) if number is None else number]), [*known]


def _path(context: Context, text: str | None, *, may_replace: bool) -> Path | None:
    if text is None:
        return None
    path = context.directory / in_home(text)
    if path.suffix.lower() not in KINDS:
        cause = f"{path.name}: a step is written as .json or as .png"
        raise SpecError(cause, fix=f"name it {path.stem or 'step'}.json")
    return file_path(path, text, may_replace=may_replace)


def _write(path: Path, steps: Sequence[Titled]) -> None:
    if path.suffix.lower() == ".png":
        content = _draw(steps)
    else:
        content = json.dumps(chrome_trace(steps)).encode()
    write_picture(path, content)


def _hint(path: Path) -> str:
    return "; open it in ui.perfetto.dev" if path.suffix.lower() == ".json" else ""


def _draw(steps: Sequence[Titled]) -> bytes:
    from jupyter_mntrain.show.picture.step_picture import (  # matplotlib takes half a second
        SeenStep,
        step_picture,
    )

    return step_picture([SeenStep(*one) for one in steps])
