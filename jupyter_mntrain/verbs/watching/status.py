"""``status``: shows one job."""

from __future__ import annotations

from argparse import Namespace

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.verbs.launching.allocations.waiting import waiting_outcome
from jupyter_mntrain.verbs.verb import Context, Outcome, Verb, find_job, job_argument
from jupyter_mntrain.verbs.watching.following import status_outcome


class StatusVerb(Verb):
    explains = (
        "step",
        "elapsed",
        "time left",
        "step time",
        "throughput",
        "MFU",
        "bubble",
        "loss",
        "pace",
        "computing",
        "encoding",
        "sending",
        "waiting",
        "memory",
        "link rate",
        "link utilization",
    )

    def add_arguments(self, parser: Parser) -> None:
        job_argument(parser)
        parser.flag("--ranks", help="a row for each rank and link, also of a large job")

    def run(self, context: Context, args: Namespace) -> Outcome:
        if (waits := waiting_outcome(context, args)) is not None:
            return waits
        return status_outcome(context, args, find_job(context, args))
