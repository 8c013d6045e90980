"""``doctor``: looks for what keeps nodes from training, before it costs anything."""

from __future__ import annotations

from argparse import Namespace

import msgspec

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.doctor.every import EVERY
from jupyter_mntrain.show.tables.doctor import doctor_table
from jupyter_mntrain.verbs.context import Context
from jupyter_mntrain.verbs.find import joined_cluster
from jupyter_mntrain.verbs.verb import Outcome, Verb

FOUND = 1
"""Exit code: something stops a launch."""


class DoctorVerb(Verb):
    name = "doctor"
    help = "look for what keeps nodes from training, with the fix"

    def add_arguments(self, parser: Parser) -> None:
        parser.argument(
            "nodes", nargs="*", metavar="NODE", completes="node", help="only these (default: all)"
        )
        parser.flag("--all", "-a", help="list the checks that all nodes passed, too")

    def run(self, context: Context, args: Namespace) -> Outcome:
        cluster = joined_cluster(context, args)
        with context.screen.progress() as progress:
            report = cluster.doctor.examine(args.nodes, progress=progress)
        return Outcome(
            doctor_table(report, EVERY, every=args.all),
            msgspec.to_builtins(report),
            exit_code=0 if report.can_launch else FOUND,
        )
