"""``forget``: forgets a node that was added or seen, or all that are silent."""

from __future__ import annotations

from argparse import Namespace

from rich.text import Text

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.verbs.verb import Context, Outcome, Verb


class ForgetVerb(Verb):
    def add_arguments(self, parser: Parser) -> None:
        parser.argument(
            "address",
            nargs="?",
            metavar="HOST[:PORT]",
            completes="address",
            help="its address, as it was added",
        )
        parser.flag("--silent", help="forget every node that does not answer")

    def run(self, context: Context, args: Namespace) -> Outcome:
        if bool(args.address) == args.silent:
            raise SpecError(
                "say which node to forget", fix="pass its HOST:PORT, or --silent for all lost ones"
            )
        cluster = context.cluster(args)
        if not args.silent:
            cluster.discovery.forget(args.address)
            return Outcome(Text(f"{args.address} is forgotten"), {"forgotten": [args.address]})
        silent = [node for node in cluster.nodes() if node.liveness == "lost"]
        for node in silent:
            cluster.discovery.forget(node.address)
        names = ", ".join(node.name for node in silent)
        said = f"{names}: forgotten" if silent else "no node is silent"
        return Outcome(Text(said), {"forgotten": [node.address for node in silent]})
