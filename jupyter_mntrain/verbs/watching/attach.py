"""``attach``: shows a job live."""

from __future__ import annotations

from argparse import Namespace

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.verbs.context import Context
from jupyter_mntrain.verbs.find import find_job, job_argument
from jupyter_mntrain.verbs.variables import refuse_variable, variable_option
from jupyter_mntrain.verbs.verb import Outcome, Verb
from jupyter_mntrain.verbs.watching.following import follow, status_outcome, timeout_option


class AttachVerb(Verb):
    name = "attach"
    help = "show a job live, with its full history"

    def add_arguments(self, parser: Parser) -> None:
        job_argument(parser)
        parser.flag("--wait", help="return once the job has ended")
        timeout_option(parser)
        variable_option(parser)

    def run(self, context: Context, args: Namespace) -> Outcome:
        refuse_variable(context, args)
        job = find_job(context, args)
        if args.wait or not context.screen.in_background:
            return follow(context, args, job)
        context.screen.show(job)
        return Outcome(data=status_outcome(context, args, job).data if args.json else None, job=job)
