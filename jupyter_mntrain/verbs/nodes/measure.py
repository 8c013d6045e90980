"""``measure``: measures every link in each direction, and the nodes' devices."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Group
from rich.text import Text

from jupyter_mntrain.command_line.needed_packages import INTERRUPTED
from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.model.errors import MntrainError, SpecError
from jupyter_mntrain.model.records.job import Participant
from jupyter_mntrain.model.records.node import LinkMeasurement
from jupyter_mntrain.model.records.probes import MOST_STREAMS
from jupyter_mntrain.plan.networks.measuring import Measuring
from jupyter_mntrain.show.problems import problem_text
from jupyter_mntrain.show.tables._plain import folding
from jupyter_mntrain.show.tables.link_matrix import link_list, link_matrix
from jupyter_mntrain.verbs.nodes.device_speeds import device_options, devices_outcome
from jupyter_mntrain.verbs.verb import Context, Outcome, Verb, joined_cluster

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Cluster


ONE_STREAM = (
    " Sent over one connection, as Gloo does between two ranks; NCCL has several: --streams 4."
)
SEVERAL_STREAMS = (
    " Sent over several connections at once, as NCCL does between two ranks; Gloo has one."
)


class MeasureVerb(Verb):
    def add_arguments(self, parser: Parser) -> None:
        parser.argument(
            "nodes",
            nargs="*",
            metavar="HOST[:N[:IFACE]]",
            completes="member",
            help="only these, over these interfaces (default: all nodes)",
        )
        parser.renamed("--member", "-m", to="")
        parser.option(
            "--streams",
            type=int,
            default=1,
            metavar="N",
            help="send over N connections at once, as NCCL does; Gloo has one (default: 1)",
        )
        parser.flag(
            "--due",
            help="only links that were never measured, have changed since, or were measured more "
            "than a week ago",
        )
        parser.flag(
            "--beside-jobs",
            help="also over interfaces that a job uses: slows the job down, and measures too low "
            "rates",
        )
        parser.flag("--links", help="only the links")
        parser.flag("--devices", help="only CPUs and GPUs")
        device_options(parser)

    def run(self, context: Context, args: Namespace) -> Outcome:
        cluster = joined_cluster(context, args)
        with context.screen.progress() as progress:
            participants = cluster.participants(args.nodes, progress=progress)
        outcomes: list[Outcome] = []
        try:
            if args.links or (not args.devices and len(participants) > 1):
                outcomes.append(self._links(context, cluster, participants, args))
            if (args.devices or not args.links) and not any(one.exit_code for one in outcomes):
                outcomes.append(devices_outcome(context, cluster, participants, args))
        except KeyboardInterrupt:
            if not outcomes:
                raise
            outcomes.append(Outcome(Text("Interrupted.", style="yellow"), {}, INTERRUPTED))
        problems = [problem for one in outcomes for problem in one.data.get("problems", ())]
        data: dict[str, Any] = {}
        for one in outcomes:
            data |= one.data
        if problems:
            data["problems"] = problems
        code = max(one.exit_code for one in outcomes)
        return Outcome(Group(*(one.renderable for one in outcomes)), data, code)

    def _links(
        self,
        context: Context,
        cluster: Cluster,
        participants: Sequence[Participant],
        args: Namespace,
    ) -> Outcome:
        if len(participants) < 2:
            raise _too_few(cluster, participants[0].node, context.program)
        how = Measuring(
            streams=_streams(args.streams),
            is_beside_jobs=args.beside_jobs,
            is_only_due=args.due,
        )
        found: list[LinkMeasurement] = []
        skipped: list[MntrainError] = []
        code = 0
        try:
            with context.screen.progress() as progress:
                links = cluster.measure(
                    participants,
                    how,
                    progress=progress,
                    on_measured=found.append,
                    on_skipped=skipped.append,
                )
        except KeyboardInterrupt:
            if not found:
                raise
            links, code = tuple(found), INTERRUPTED
        if not links:
            return Outcome(Text("No link is due."), {"links": []})
        missing = [problem_text(one.problem, before="not measured: ") for one in skipped]
        if code:
            due = f"{context.program} measure --links --due"
            words = "Interrupted: only these links were measured; the others are as they were. "
            missing.append(Text(f"{words}Those that are due: {due}", style="yellow"))
        words = "Stored by the agents, for the interface choice and link utilization."
        words += ONE_STREAM if how.streams == 1 else SEVERAL_STREAMS
        if any(link.capacity.condition != "alone" for link in links):
            words += (
                " A disturbed figure is a lower bound: a higher one measured alone is kept instead."
            )
        note = folding([Text(words, style="dim")])
        matrix = link_matrix(links)
        shown = [] if matrix is None else [matrix]
        data: dict[str, Any] = {"links": [msgspec.to_builtins(link) for link in links]}
        if missing:
            data["is_partial"] = True
            data["problems"] = [msgspec.to_builtins(one.problem) for one in skipped]
        return Outcome(Group(*shown, link_list(links), *missing, note), data, code)


def _streams(count: int) -> int:
    if not 1 <= count <= MOST_STREAMS:
        raise SpecError(
            f"--streams {count} is not possible", fix=f"use 1 to {MOST_STREAMS} connections"
        )
    return count


def _too_few(cluster: Cluster, only: str, program: str) -> SpecError:
    others = sorted(
        node.name for node in cluster.nodes() if node.liveness == "up" and node.name != only
    )
    if others:
        return SpecError(
            f"a link needs two nodes, but only {only} was chosen",
            fix=f"name {others[0]}, too, or no node",
        )
    return SpecError(
        f"a link needs two nodes, but only {only} is up",
        fix=f"start another agent, see {program} nodes",
    )
