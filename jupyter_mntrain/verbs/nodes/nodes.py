"""``nodes``, ``add``, ``forget``: which nodes there are."""

from __future__ import annotations

from argparse import Namespace

import msgspec
from rich.text import Text

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.show.tables.node_list import Surroundings, node_data, node_table
from jupyter_mntrain.verbs.context import Context
from jupyter_mntrain.verbs.find import reachable_nodes
from jupyter_mntrain.verbs.verb import Outcome, Verb


class NodesVerb(Verb):
    name = "nodes"
    help = "list the nodes with state, GPUs, interfaces and versions"

    def add_arguments(self, parser: Parser) -> None:
        parser.option(
            "--all",
            "-a",
            action="store_true",
            help="include virtual interfaces and those that are down",
        )

    def run(self, context: Context, args: Namespace) -> Outcome:
        cluster = context.cluster(args)
        nodes = reachable_nodes(context, cluster)
        if any(node.liveness != "up" for node in nodes) or not nodes:
            cluster.discovery.check()
        table = node_table(
            nodes,
            around=Surroundings(
                is_driver=cluster.membership.is_driver,
                discovery_problem=cluster.discovery.problem,
                strangers=cluster.discovery.strangers,
            ),
            cluster=cluster.name,
            now_s=context.clock(),
            program=context.program,
            every=args.all,
        )
        return Outcome(table, node_data(nodes))


class AddVerb(Verb):
    name = "add"
    help = "add a node that multicast does not reach; it is remembered"

    def add_arguments(self, parser: Parser) -> None:
        parser.argument("address", metavar="HOST[:PORT]", help="address of its agent")

    def run(self, context: Context, args: Namespace) -> Outcome:
        node = context.cluster(args).discovery.add(args.address)
        text = Text.assemble(("✓ ", "green"), (node.name, "bold"), f" at {node.address} is up")
        return Outcome(text, {"name": node.name, **msgspec.to_builtins(node)})


class ForgetVerb(Verb):
    name = "forget"
    help = "forget a node that was added"

    def add_arguments(self, parser: Parser) -> None:
        parser.argument(
            "address", metavar="HOST[:PORT]", completes="address", help="as it was added"
        )

    def run(self, context: Context, args: Namespace) -> Outcome:
        if not args.address:
            raise SpecError("missing HOST:PORT", fix="pass the HOST:PORT of the node to forget")
        context.cluster(args).discovery.forget(args.address)
        return Outcome(Text(f"{args.address} is forgotten"), {"forgotten": args.address})
