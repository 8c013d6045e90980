"""``jobs``: lists running and ended jobs."""

from __future__ import annotations

from argparse import Namespace
from typing import Any, get_args

import msgspec

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.model.lifecycle.listing import RECENT, JobSort, duration_s, job_step
from jupyter_mntrain.model.records.job import TERMINAL, JobView
from jupyter_mntrain.show.tables.job_list import job_table
from jupyter_mntrain.verbs.verb import Context, Outcome, Verb, all_jobs


class JobsVerb(Verb):
    shows_cluster = True
    explains = ("step", "elapsed")

    def add_arguments(self, parser: Parser) -> None:
        parser.flag("--all", "-a", help=f"all ended jobs, not only the newest {RECENT}")
        parser.option(
            "--search",
            metavar="TEXT",
            default="",
            help="list only jobs with this text in name, id, note, nodes, command or person",
        )
        parser.option(
            "--sort",
            choices=get_args(JobSort),
            default="started",
            help="newest or longest first, or by name or state; default: started",
        )

    def run(self, context: Context, args: Namespace) -> Outcome:
        jobs = all_jobs(context, args, search=args.search, everything=args.all, sort=args.sort)
        table = job_table(
            jobs,
            now_s=context.clock(),
            program=context.program,
            awaited=context.cluster(args).awaited(),
            search=args.search,
            may_have_more=not (args.all or args.search)
            and sum(job.state in TERMINAL for job in jobs) >= RECENT,
        )
        return Outcome(table, [_data(job, context.clock()) for job in jobs])


def _data(job: JobView, now_s: float) -> dict[str, Any]:
    return {
        "job_id": job.job_id,
        "name": job.spec.name,
        "state": job.state,
        "note": job.label.note,
        "nodes": [placement.node for placement in job.attempt.placements],
        "world_size": job.attempt.world_size,
        "step": job_step(job),
        "submitted_s": job.attempt.submitted_s,
        "elapsed_s": duration_s(job, now_s),
        "run": job.run,
        "saved_step": job.saved_step,
        "resumed_step": job.resumed_step,
        "problem": msgspec.to_builtins(job.problem),
        "warnings": msgspec.to_builtins(job.warnings),
    }
