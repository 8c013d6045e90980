"""``kill``: kills a job's processes on all nodes at once, or those of one rank."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from rich.text import Text

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.model.records.job import TERMINAL
from jupyter_mntrain.verbs.controlling.ending import (
    ENDED_WITHIN_S,
    ended_outcome,
    running_job,
    running_job_argument,
)
from jupyter_mntrain.verbs.launching.allocations.waiting import stopped_waiting
from jupyter_mntrain.verbs.verb import Context, Outcome, Verb, rank_option

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Job


class KillVerb(Verb):
    def add_arguments(self, parser: Parser) -> None:
        running_job_argument(parser)
        rank_option(parser, "kill only this rank, as if it had crashed")

    def run(self, context: Context, args: Namespace) -> Outcome:
        if args.rank is None and (ended := stopped_waiting(context, args)) is not None:
            return ended
        job = running_job(context, args, self.name)
        if args.rank is not None:
            return _kill_rank(context, job, args.rank)
        before = job.view().state
        if before not in TERMINAL:
            with context.screen.progress() as progress:
                job.kill(progress=progress)
        return ended_outcome(context, args, job, ENDED_WITHIN_S, was_over=before in TERMINAL)


def _kill_rank(context: Context, job: Job, rank: int) -> Outcome:
    view = job.kill_rank(rank)
    node, pid = next(
        (part.node, one.pid) for part in view.parts for one in part.ranks if one.rank == rank
    )
    text = Text.assemble(
        (f"{job.id} ", "bold"),
        f"rank {rank} on {node} was killed (pid {pid}); "
        f"what follows: {context.program} status {job.id}",
    )
    return Outcome(text, {"job_id": job.id, "rank": rank, "node": node, "pid": pid}, job=job)
