"""``stop``: ends a job on all nodes."""

from __future__ import annotations

from argparse import Namespace

from jupyter_mntrain.command_line.parser import Parser, bounded_duration
from jupyter_mntrain.model.api import LONGEST_GRACE_S, STOP_GRACE_S
from jupyter_mntrain.model.records.job import TERMINAL
from jupyter_mntrain.verbs.controlling.ending import (
    ENDED_WITHIN_S,
    SAVED_WITHIN_S,
    ended_outcome,
    running_job,
    running_job_argument,
)
from jupyter_mntrain.verbs.launching.allocations.waiting import (
    given_back,
    refuse_own_nodes,
    stopped_waiting,
)
from jupyter_mntrain.verbs.verb import Context, Outcome, Verb


class StopVerb(Verb):
    def add_arguments(self, parser: Parser) -> None:
        running_job_argument(parser)
        parser.option(
            "--grace",
            type=bounded_duration(0, LONGEST_GRACE_S),
            default=STOP_GRACE_S,
            metavar="DURATION",
            help=f"time until ranks are killed, like 30s; default: {STOP_GRACE_S:g}s",
        )
        parser.flag("--save", help="save a checkpoint after the current step, then end")
        parser.flag(
            "--give-back", help="then give its nodes back to the scheduler; ends all jobs on them"
        )
        parser.option(
            "--reason", metavar="TEXT", default="stopped by user", help="why, stored with the job"
        )

    def run(self, context: Context, args: Namespace) -> Outcome:
        if args.give_back:
            refuse_own_nodes(args)
        if (ended := stopped_waiting(context, args)) is not None:
            return ended
        if args.give_back:
            return given_back(context, args, lambda: self._ended(context, args))
        return self._ended(context, args)

    def _ended(self, context: Context, args: Namespace) -> Outcome:
        job = running_job(context, args, self.name)
        before = job.view().state
        if args.save and before not in TERMINAL:
            job.save(is_last=True, reason=f"{args.reason}, after saving")
            return ended_outcome(context, args, job, SAVED_WITHIN_S, was_over=False)
        if before not in TERMINAL:
            with context.screen.progress() as progress:
                job.stop(reason=args.reason, grace_s=args.grace, progress=progress)
        return ended_outcome(
            context, args, job, args.grace + ENDED_WITHIN_S, was_over=before in TERMINAL
        )
