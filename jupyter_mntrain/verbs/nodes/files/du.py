"""``du``: lists large files on nodes, with their sizes."""

from __future__ import annotations

from argparse import Namespace

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.show.tables.kept.files import by_node, space_table
from jupyter_mntrain.verbs.verb import Context, Outcome, Verb, joined_cluster


class DuVerb(Verb):
    def add_arguments(self, parser: Parser) -> None:
        parser.argument(
            "nodes", nargs="*", metavar="NODE", completes="node", help="only these (default: all)"
        )

    def run(self, context: Context, args: Namespace) -> Outcome:
        cluster = joined_cluster(context, args)
        with context.screen.progress() as progress:
            found = cluster.files.space(args.nodes, progress=progress)
        return Outcome(space_table(found, now_s=context.clock()), by_node("spaces", found))
