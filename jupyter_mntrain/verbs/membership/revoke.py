"""``revoke``: revokes the certificate of a member."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from rich.text import Text

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.show import formats
from jupyter_mntrain.verbs.verb import Context, Outcome, Verb, joined_cluster, reachable_nodes

if TYPE_CHECKING:
    from jupyter_mntrain.trust.certificates import Role


class RevokeVerb(Verb):
    role: Role | None = None
    """Which members it revokes; ``None`` = all."""

    def add_arguments(self, parser: Parser) -> None:
        parser.argument(
            "member",
            metavar="NAME",
            completes="node",
            help="name of the member, as listed by members",
        )

    def run(self, context: Context, args: Namespace) -> Outcome:
        cluster = joined_cluster(context, args)
        reachable_nodes(context, cluster)
        gone = cluster.membership.revoke(args.member, role=self.role)
        nodes = cluster.nodes()
        silent = [node.name for node in nodes if node.liveness != "up"]
        text = Text.assemble(("✓ ", "green"), (gone.title, "bold"), " is revoked; ")
        told = len(nodes) - len(silent)
        text.append(f"{formats.plural(told, 'node')} {'knows' if told == 1 else 'know'} about it.")
        if silent:
            text.append(
                f" Not informed yet: {', '.join(silent)}; each learns of it when a driver "
                "reaches it.",
                "yellow",
            )
        return Outcome(text, {"member": gone.title, "member_id": gone.name, "silent": silent})
