"""Resuming from the panel: from where an ended job can continue with the choices made there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.program import program_of
from jupyter_mntrain.model.records.job import TERMINAL, JobSpec
from jupyter_mntrain.plan.resume import reported_step, told_steps
from jupyter_mntrain.show import formats
from jupyter_mntrain.verbs.panel.choices import Choices, NodeChoice
from jupyter_mntrain.verbs.panel.node_row import Fix

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Job
    from jupyter_mntrain.cluster.launch.resume import ResumePlan

LOSSES = {
    "by-script": "The script itself continues from what it saved.",
    "other": "The losses will differ from those of an unbroken run.",
    "rounding": "The losses will be those of an unbroken run, except for rounding.",
    "equal": "The losses will still be those of an unbroken run.",
}


class Resumption(Record, frozen=True):
    """The button next to Launch, and the sentence about it.

    Args:
        job: that is resumed.
        text: what is repeated, what was changed, and the losses; or why it cannot be resumed.
        step: from which it goes on; ``None`` if only a script knows.
        can_start: whether it can be resumed.
        fix: a button for what is in the way, if there is one.
    """

    job: JobId
    text: str
    step: int | None = None
    can_start: bool = True
    fix: Fix | None = None

    @property
    def label(self) -> str:
        return "Resume" if self.step is None else f"Resume from step {formats.count(self.step)}"


def resumption(job: Job, spec: JobSpec, choices: Choices, *, is_asked: bool) -> Resumption | None:
    """Return how an ended job can be resumed. Asks the nodes of its run.

    Args:
        spec: what is to go on.
        is_asked: whether a person named the job: else one that cannot go on is not spoken of.
    """
    if job.state not in TERMINAL and not is_asked:
        return None
    try:
        plan = job.plan_resume(spec)
    except MntrainError as error:
        fix = _more_steps(job, spec, choices)
        if fix is None and not is_asked:
            return None
        # The button is the fix; what the error names is an option of the command line.
        text = str(error) if fix is None else error.problem.headline
        return Resumption(job.id, text, can_start=False, fix=fix)
    step_s = job.summary().step_s
    return Resumption(job.id, resume_text(plan, step_s=step_s), step=plan.step)


def resume_text(plan: ResumePlan, *, step_s: float | None) -> str:
    """Say what is repeated, what was changed, and how the losses compare to an unbroken run.

    The page says the same (``labextension/src/resume/texts.ts``).

    Args:
        step_s: seconds that a step took.
    """
    losses = plan.losses
    words = [] if losses == "by-script" else [_repeats(plan, step_s)]
    if plan.changed:
        words.append(f"Changed: {', '.join(plan.changed)}.")
    elif losses == "equal":
        words.append("Same nodes and settings, so the losses will be those of an unbroken run.")
        return " ".join(words)
    return " ".join([*words, LOSSES[losses]])


def _repeats(plan: ResumePlan, step_s: float | None) -> str:
    origin = plan.spec.origin
    count = ((origin.reached if origin else None) or 0) - (plan.step or 0)
    if count <= 0:
        return "No step is repeated."
    steps = f"{formats.plural(count, 'step')} {'is' if count == 1 else 'are'} repeated"
    return f"{steps} ({formats.duration(count * step_s)})." if step_s else f"{steps}."


def _more_steps(job: Job, spec: JobSpec, choices: Choices) -> Fix | None:
    """Return a button that adds steps to a run that has made all of its steps."""
    view = job.view()
    step, program = reported_step([view]), program_of(spec)
    total = program.total_steps(program, told_steps(view))
    if step is None or total is None or step < total:
        return None
    steps = str(2 * step)
    chosen = msgspec.structs.replace(choices, steps=steps)
    return Fix(label=f"Make {formats.count(2 * step)} steps in all", choices=chosen)


def choices_of(spec: JobSpec, names: Mapping[str, str]) -> Choices:
    """Return the choices of a job that is run again, except for what the job brings along.

    Args:
        names: of nodes, by their ids.
    """
    placed = [(names.get(one.node, one.node), one) for one in spec.participants]
    return Choices(
        nodes={
            name: NodeChoice(is_used=True, gpus=str(one.nproc), interface=one.interface)
            for name, one in placed
        },
        others_take_part=False,
        head=placed[0][0] if placed else None,
        priority=str(spec.priority) if spec.priority else "",
        restart="never"
        if not spec.max_restarts
        else "failed or stalled"
        if spec.on_stall == "abort"
        else "failed",
        restarts=str(spec.max_restarts) if spec.max_restarts else "",
        min_nodes=str(spec.min_nodes) if spec.min_nodes and spec.max_restarts else "",
    )
