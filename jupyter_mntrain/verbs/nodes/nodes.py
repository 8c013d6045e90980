"""``nodes``: lists the nodes."""

from __future__ import annotations

from argparse import Namespace

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.show.tables.node_list import Surroundings, node_data, node_table
from jupyter_mntrain.verbs.verb import Context, Outcome, Verb, joined_cluster, reachable_nodes


class NodesVerb(Verb):
    shows_cluster = True

    def add_arguments(self, parser: Parser) -> None:
        parser.flag(
            "--all", "-a", help="all of each node, also virtual interfaces and those that are down"
        )

    def run(self, context: Context, args: Namespace) -> Outcome:
        cluster = joined_cluster(context, args)
        nodes = reachable_nodes(context, cluster)
        if any(node.liveness != "up" for node in nodes) or not nodes:
            cluster.discovery.check()
        table = node_table(
            nodes,
            around=Surroundings(
                discovery_problem=cluster.discovery.problem,
                strangers=cluster.discovery.strangers,
            ),
            cluster=cluster.name,
            now_s=context.clock(),
            program=context.program,
            every=args.all,
        )
        return Outcome(table, node_data(nodes))
