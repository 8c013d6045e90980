"""``save``: saves a checkpoint; the job continues."""

from __future__ import annotations

from argparse import Namespace

import msgspec
from rich.text import Text

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.model.records.job import TERMINAL, JobView
from jupyter_mntrain.show import formats
from jupyter_mntrain.verbs.controlling.ending import (
    SAVED_WITHIN_S,
    running_job,
    running_job_argument,
)
from jupyter_mntrain.verbs.verb import Context, Outcome, Verb


class SaveVerb(Verb):
    def add_arguments(self, parser: Parser) -> None:
        running_job_argument(parser)

    def run(self, context: Context, args: Namespace) -> Outcome:
        job = running_job(context, args, self.name)
        before = job.view()
        job.save()
        with context.screen.progress() as progress:
            saved = job.wait_for_save(before, SAVED_WITHIN_S, progress=progress)
        problem = None if saved is None else saved.problem
        if saved is not None and problem is None:
            text = Text.assemble((f"{job.id} ", "bold"), f"saved at step {saved.step}")
            return Outcome(text, {"job_id": job.id, "saved_step": saved.step}, job=job)
        text = Text.assemble((f"{job.id} ", "bold"), "was asked to save; ")
        text.append(_why_not(before, job.view()) if problem is None else str(problem))
        data = {"job_id": job.id, "saved_step": None, "problem": msgspec.to_builtins(problem)}
        return Outcome(text, data, exit_code=1, job=job)


def _why_not(before: JobView, now: JobView) -> str:
    if now.state in TERMINAL:
        return "it ended before it had"
    if now.attempt.number != before.attempt.number:
        return f"attempt {before.attempt.number} ended before it had saved: try again"
    return f"not finished after {formats.duration(SAVED_WITHIN_S)}"
