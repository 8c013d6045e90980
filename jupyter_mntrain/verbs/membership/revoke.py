"""``revoke``: withdraws the certificate of a member."""

from __future__ import annotations

from argparse import Namespace

from rich.text import Text

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.show import formats
from jupyter_mntrain.verbs.context import Context
from jupyter_mntrain.verbs.find import reachable_nodes
from jupyter_mntrain.verbs.verb import Outcome, Verb


class RevokeVerb(Verb):
    name = "revoke"
    help = "revoke the certificate of a node or driver"

    def add_arguments(self, parser: Parser) -> None:
        parser.argument(
            "member",
            metavar="NAME",
            completes="node",
            help="name of the member, as listed by members",
        )

    def run(self, context: Context, args: Namespace) -> Outcome:
        cluster = context.cluster(args)
        reachable_nodes(context, cluster)
        gone = cluster.membership.revoke(args.member)
        nodes = cluster.nodes()
        silent = [node.name for node in nodes if node.liveness != "up"]
        text = Text.assemble(("✓ ", "green"), (gone.title, "bold"), " is revoked; ")
        text.append(f"{formats.plural(len(nodes) - len(silent), 'node')} know it.")
        if silent:
            text.append(
                f" Not yet: {', '.join(silent)}; they will learn it when a driver reaches them.",
                "yellow",
            )
        return Outcome(text, {"revoked": gone.title, "id": gone.name, "not_told": silent})
