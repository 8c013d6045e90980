"""``kill``: kills a job's processes on all nodes at once."""

from __future__ import annotations

from argparse import Namespace

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.model.records.job import TERMINAL
from jupyter_mntrain.verbs.context import Context
from jupyter_mntrain.verbs.controlling.ending import (
    ENDED_WITHIN_S,
    ended_outcome,
    running_job,
    running_job_argument,
)
from jupyter_mntrain.verbs.verb import Outcome, Verb


class KillVerb(Verb):
    name = "kill"
    help = "end a job on all nodes immediately"

    def add_arguments(self, parser: Parser) -> None:
        running_job_argument(parser)

    def run(self, context: Context, args: Namespace) -> Outcome:
        job = running_job(context, args, self.name)
        before = job.view().state
        if before not in TERMINAL:
            with context.screen.progress() as progress:
                job.kill(progress=progress)
        return ended_outcome(context, job, ENDED_WITHIN_S, was_over=before in TERMINAL)
