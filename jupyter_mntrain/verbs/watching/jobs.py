"""``jobs``: lists running and ended jobs."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import msgspec

from jupyter_mntrain.model.records.job import JobView
from jupyter_mntrain.show.tables.job_list import job_step, job_table
from jupyter_mntrain.verbs.context import Context
from jupyter_mntrain.verbs.find import all_jobs
from jupyter_mntrain.verbs.verb import Outcome, Verb


class JobsVerb(Verb):
    name = "jobs"
    help = "list the jobs of all reachable nodes, newest first"

    def run(self, context: Context, args: Namespace) -> Outcome:
        jobs = all_jobs(context, args)
        table = job_table(
            jobs,
            now_s=context.clock(),
            program=context.program,
            awaited=context.cluster(args).awaited(),
        )
        return Outcome(table, [_data(job) for job in jobs])


def _data(job: JobView) -> dict[str, Any]:
    return {
        "job_id": job.job_id,
        "name": job.spec.name,
        "state": job.state,
        "nodes": [placement.node for placement in job.attempt.placements],
        "ranks": job.attempt.world_size,
        "step": job_step(job),
        "submitted_s": job.attempt.submitted_s,
        "run": job.run,
        "saved_step": job.saved_step,
        "resumed_step": job.resumed_step,
        "problem": msgspec.to_builtins(job.problem),
        "warnings": msgspec.to_builtins(job.warnings),
    }
