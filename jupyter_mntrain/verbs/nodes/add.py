"""``add``: adds a node by its address."""

from __future__ import annotations

from argparse import Namespace

import msgspec
from rich.text import Text

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.verbs.verb import Context, Outcome, Verb


class AddVerb(Verb):
    def add_arguments(self, parser: Parser) -> None:
        parser.argument("address", metavar="HOST[:PORT]", help="address of its agent")

    def run(self, context: Context, args: Namespace) -> Outcome:
        node = context.cluster(args).discovery.add(args.address)
        text = Text.assemble(("✓ ", "green"), (node.name, "bold"), f" at {node.address} is up")
        return Outcome(text, {"node": node.name, **msgspec.to_builtins(node)})
