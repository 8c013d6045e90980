"""``save``: saves a checkpoint; the job continues."""

from __future__ import annotations

from argparse import Namespace
from time import monotonic
from typing import TYPE_CHECKING

from rich.text import Text

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.launch.progress import Progress
from jupyter_mntrain.model.lifecycle.saves import requested_save
from jupyter_mntrain.model.records.job import TERMINAL, JobView
from jupyter_mntrain.show import formats
from jupyter_mntrain.verbs.context import Context
from jupyter_mntrain.verbs.controlling.ending import (
    SAVED_WITHIN_S,
    running_job,
    running_job_argument,
)
from jupyter_mntrain.verbs.verb import Outcome, Verb

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Job


class SaveVerb(Verb):
    def add_arguments(self, parser: Parser) -> None:
        running_job_argument(parser)

    def run(self, context: Context, args: Namespace) -> Outcome:
        job = running_job(context, args, self.name)
        before = job.view()
        job.save()
        with context.screen.progress() as progress:
            saved = requested_after(job, before, progress)
        data = {"job_id": job.id, "saved_step": saved}
        text = Text.assemble((f"{job.id} ", "bold"))
        if saved is None:
            text.append(f"was asked to save; {_why_not(before, job.view())}")
            return Outcome(text, data, exit_code=1, job=job)
        return Outcome(text.append(f"saved at step {saved}"), data, job=job)


def requested_after(job: Job, before: JobView, progress: Progress) -> int | None:
    """Wait for the checkpoint that was asked for. Returns its step; ``None`` = there is none.

    Args:
        before: the job when it was asked; later checkpoints that were only due are waited past.
    """
    newest, until_s = before.saved_step, monotonic() + SAVED_WITHIN_S
    while True:
        left_s = max(0.0, until_s - monotonic())
        newest = job.wait_for_save(after=newest, timeout_s=left_s, progress=progress)
        now = job.view()
        if newest is None:
            return None
        if (saved := requested_save(now, before.saved_step or 0)) is not None:
            return saved
        if now.attempt.number != before.attempt.number or monotonic() > until_s:
            return None


def _why_not(before: JobView, now: JobView) -> str:
    if now.state in TERMINAL:
        return "it ended before it had"
    if now.attempt.number != before.attempt.number:
        return f"attempt {before.attempt.number} ended before it had: ask the next one"
    return f"not finished after {formats.duration(SAVED_WITHIN_S)}"
