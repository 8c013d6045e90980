"""``attach``: shows a job live, also one whose nodes are still waited for."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.sources.awaited_launch import AwaitedLaunch
from jupyter_mntrain.verbs.context import Context
from jupyter_mntrain.verbs.find import find_job, job_argument
from jupyter_mntrain.verbs.launching.allocations.waiting import (
    awaited_launch,
    looking_at,
    waited_for,
)
from jupyter_mntrain.verbs.variables import refuse_variable, variable_option
from jupyter_mntrain.verbs.verb import Outcome, Verb
from jupyter_mntrain.verbs.watching.following import follow, status_outcome, timeout_option

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Job

LEAST_TIMEOUT_S = 0.1


class AttachVerb(Verb):
    name = "attach"
    help = "show a job live with its history, or why it still waits for nodes"

    def add_arguments(self, parser: Parser) -> None:
        job_argument(parser)
        parser.flag("--wait", help="return once the job has ended")
        timeout_option(parser)
        variable_option(parser)

    def run(self, context: Context, args: Namespace) -> Outcome:
        refuse_variable(context, args)
        is_left = context.screen.in_background and not args.wait
        launch = awaited_launch(args)
        if launch is None:
            found: Job | Outcome = find_job(context, args)
        elif is_left:
            found = _left_to_screen(context, args, launch)
        else:
            begun_s = context.clock()
            found = waited_for(context, args, launch)
            args = _with_less_time(args, context.clock() - begun_s)
        if isinstance(found, Outcome):
            return found
        if not is_left:
            return follow(context, args, found)
        context.screen.show(found)
        data = status_outcome(context, args, found).data if args.json else None
        return Outcome(data=data, job=found)


def _left_to_screen(context: Context, args: Namespace, launch: AwaitedLaunch) -> Job | Outcome:
    """Have the screen show why a launch waits, and then its job; the job if it is there now."""
    look = looking_at(context, args, launch)
    first = look()
    if first.job is not None:
        return first.job
    context.screen.await_job(first, look)
    return Outcome(data=first.data if args.json else None)


def _with_less_time(args: Namespace, waited_s: float) -> Namespace:
    if args.timeout is None:
        return args
    left_s = max(LEAST_TIMEOUT_S, args.timeout - waited_s)
    return Namespace(**{**vars(args), "timeout": left_s})
