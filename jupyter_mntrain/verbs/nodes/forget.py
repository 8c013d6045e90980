"""``forget``: forgets a node that was added by its address."""

from __future__ import annotations

from argparse import Namespace

from rich.text import Text

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.verbs.context import Context
from jupyter_mntrain.verbs.verb import Outcome, Verb


class ForgetVerb(Verb):
    name = "forget"
    help = "forget a node that was added"

    def add_arguments(self, parser: Parser) -> None:
        parser.argument(
            "address",
            metavar="HOST[:PORT]",
            completes="address",
            help="its address, as it was added",
        )

    def run(self, context: Context, args: Namespace) -> Outcome:
        if not args.address:
            raise SpecError("missing HOST:PORT", fix="pass the HOST:PORT of the node to forget")
        context.cluster(args).discovery.forget(args.address)
        return Outcome(Text(f"{args.address} is forgotten"), {"forgotten": args.address})
