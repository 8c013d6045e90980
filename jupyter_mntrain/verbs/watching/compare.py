"""``compare``: shows jobs side by side: their figures, and the settings that differ."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import msgspec
from rich.console import Group

from jupyter_mntrain.cluster.history.comparison import compare_jobs
from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.show.tables.comparison import (
    difference_table,
    figure_table,
    ranking_line,
    same_line,
)
from jupyter_mntrain.verbs.verb import Context, Outcome, Verb, caught_up_history, named_job


class CompareVerb(Verb):
    explains = ("step", "elapsed", "step time", "throughput", "MFU", "bubble", "loss")

    def add_arguments(self, parser: Parser) -> None:
        parser.argument(
            "jobs", nargs="+", metavar="JOB", completes="job", help="ids, or how they begin"
        )

    def run(self, context: Context, args: Namespace) -> Outcome:
        named = [named_job(context, args, text) for text in args.jobs]
        jobs = list({job.id: job for job in named}.values())
        if len(jobs) < 2:
            raise SpecError(
                "one job alone cannot be compared",
                fix=f"name another one: {context.program} compare {jobs[0].id} JOB",
            )
        for job in jobs:
            caught_up_history(context, job)
        compared = compare_jobs(jobs)
        settings = compared.settings
        shown = Group(
            figure_table(compared.summaries),
            ranking_line(compared.ranking),
            "",
            difference_table(settings.differing, [job.id for job in jobs]),
            same_line(settings.same),
        )
        data: dict[str, Any] = {
            "jobs": [msgspec.to_builtins(one) for one in compared.summaries],
            "differing": msgspec.to_builtins(settings.differing),
            "same": list(settings.same),
            "ranking": msgspec.to_builtins(compared.ranking),
        }
        return Outcome(shown, data)
