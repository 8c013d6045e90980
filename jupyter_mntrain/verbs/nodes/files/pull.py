"""``pull``: fetches a model or data set from a node to this machine."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import msgspec

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.launch.files.names import parse_large_name
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.whereabouts import in_home
from jupyter_mntrain.show.tables.kept.files import pulled_text
from jupyter_mntrain.verbs.context import Context
from jupyter_mntrain.verbs.find import joined_cluster
from jupyter_mntrain.verbs.verb import Outcome, Verb


class PullVerb(Verb):
    def add_arguments(self, parser: Parser) -> None:
        parser.argument("what", metavar="NODE:ROOT:NAME", help="like node1:models:llama")
        parser.argument(
            "to",
            nargs="?",
            metavar="PATH",
            completes="file",
            help="what it is called here; default: its name, in this folder",
        )

    def run(self, context: Context, args: Namespace) -> Outcome:
        node, colon, text = args.what.partition(":")
        if not (node and colon and ":" in text):
            raise SpecError(
                f"{args.what!r} does not name something of a node",
                fix="use NODE:ROOT:NAME, like node1:models:llama; mntrain du lists what is where",
            )
        name = parse_large_name(text)
        to = context.directory / in_home(args.to or Path(name.name).name)
        files = joined_cluster(context, args).files
        with context.screen.progress() as progress:
            pulled = files.pull(node, name, to, progress=progress)
        return Outcome(pulled_text(pulled), msgspec.to_builtins(pulled))
