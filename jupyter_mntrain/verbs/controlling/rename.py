"""``rename``: gives a job another name."""

from __future__ import annotations

from argparse import Namespace

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.verbs.controlling.labeling import labeled_outcome
from jupyter_mntrain.verbs.verb import Context, Outcome, Verb, named_job


class RenameVerb(Verb):
    def add_arguments(self, parser: Parser) -> None:
        parser.argument("job", metavar="JOB", completes="job", help="its id, or how it begins")
        parser.argument("text", metavar="NAME", help='the new name; "" = the original one')

    def run(self, context: Context, args: Namespace) -> Outcome:
        job = named_job(context, args, args.job)
        return labeled_outcome(context, job, job.rename(args.text))
