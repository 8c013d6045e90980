"""``attach``: shows a job live, even while it waits for nodes."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.sources.awaited_launch import AwaitedLaunch
from jupyter_mntrain.verbs.launching.allocations.waiting import (
    awaited_launch,
    looking_at,
    waited_for,
)
from jupyter_mntrain.verbs.variables import refuse_variable, variable_option
from jupyter_mntrain.verbs.verb import Context, Outcome, Verb, find_job, job_argument
from jupyter_mntrain.verbs.watching.following import follow, status_outcome, timeout_option

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Job


class AttachVerb(Verb):
    def add_arguments(self, parser: Parser) -> None:
        job_argument(parser)
        parser.flag("--wait", help="return once the job has ended")
        timeout_option(parser)
        variable_option(parser)

    def run(self, context: Context, args: Namespace) -> Outcome:
        refuse_variable(context, args)
        is_left = context.screen.in_background and not args.wait
        launch, begun_s = awaited_launch(args), context.clock()
        if launch is None:
            found: Job | Outcome = find_job(context, args)
        elif is_left:
            found = _left_to_screen(context, args, launch)
        else:
            found = waited_for(context, args, launch)
        if isinstance(found, Outcome):
            return found
        if not is_left:
            waited_s = 0.0 if launch is None else context.clock() - begun_s
            return follow(context, args, found, waited_s)
        context.screen.show(found)
        data = status_outcome(context, args, found).data if args.json else None
        return Outcome(data=data, job=found)


def _left_to_screen(context: Context, args: Namespace, launch: AwaitedLaunch) -> Job | Outcome:
    """Let the screen show why a launch waits and then its job; return the job if it exists now.

    Raises:
        SpecError: a variable is to have the job, which is not there yet.
    """
    look = looking_at(context, args, launch)
    first = look()
    if first.job is not None:
        return first.job
    if args.variable:
        cause = f"--variable {args.variable}: {launch.cluster} still waits for nodes"
        raise SpecError(cause, fix="add --wait to wait for it, or leave -o out")
    context.screen.await_job(first, look)
    return Outcome(data=first.data if args.json else None)
