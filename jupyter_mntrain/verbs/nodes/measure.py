"""``measure``: measures the capacity of every link, per direction."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

import msgspec
from rich.console import Group
from rich.text import Text

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.show import formats
from jupyter_mntrain.show.tables._plain import plain_table
from jupyter_mntrain.verbs.context import Context
from jupyter_mntrain.verbs.find import joined_cluster
from jupyter_mntrain.verbs.verb import Outcome, Verb

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Cluster


class MeasureVerb(Verb):
    name = "measure"
    help = "measure every link in both directions, about a second each"

    def add_arguments(self, parser: Parser) -> None:
        parser.repeatable(
            "--member",
            "-m",
            metavar="HOST[:N[:IFACE]]",
            completes="member",
            help="only between these nodes, over these interfaces; repeatable",
        )

    def run(self, context: Context, args: Namespace) -> Outcome:
        cluster = joined_cluster(context, args)
        with context.screen.progress() as progress:
            participants = cluster.participants(args.member, progress=progress)
        if len(participants) < 2:
            raise _too_few(cluster, participants[0].node, context.program)
        pairs = len(participants) * (len(participants) - 1)
        context.screen.say(
            Text(f"measuring {formats.plural(pairs, 'direction')}, about {pairs} s", style="dim")
        )
        with context.screen.progress() as progress:
            links = cluster.measure(participants, progress=progress)
        table = plain_table("from", "to", "interface", "carries", "condition", right=("carries",))
        for link in links:
            table.add_row(
                link.sender,
                link.receiver,
                f"{link.interface} {link.address}",
                formats.bit_rate(link.capacity.bytes_per_s),
                link.capacity.condition or formats.ABSENT,
            )
        words = "Stored by the agents, for the interface choice and link utilization."
        if any(link.capacity.condition != "alone" for link in links):
            words += (
                " A disturbed figure is a lower bound: a higher one measured alone is kept instead."
            )
        note = Text(words, style="dim")
        return Outcome(Group(table, note), [msgspec.to_builtins(link) for link in links])


def _too_few(cluster: Cluster, only: str, program: str) -> SpecError:
    others = sorted(
        node.name for node in cluster.nodes() if node.liveness == "up" and node.name != only
    )
    if others:
        return SpecError(
            f"a link needs two nodes, but only {only} was chosen",
            fix=f"add --member {others[0]}, or omit --member",
        )
    return SpecError(
        f"a link needs two nodes, but only {only} is up",
        fix=f"start another agent, see {program} nodes",
    )
