"""``upgrade``: gives nodes the driver's versions through ssh; no running job is harmed."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from jupyter_mntrain.command_line.parser import Parser, typed
from jupyter_mntrain.model.errors import NodeError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.verbs.nodes.install import common_options
from jupyter_mntrain.verbs.nodes.installing.target import parse_target
from jupyter_mntrain.verbs.verb import Context, Outcome, Verb, joined_cluster

if TYPE_CHECKING:
    from jupyter_mntrain.verbs.nodes.installing.host import Host, InstalledHost


class UpgradeVerb(Verb):
    def add_arguments(self, parser: Parser) -> None:
        parser.argument(
            "hosts",
            nargs="*",
            metavar="USER@HOST[:PORT]",
            type=typed(parse_target),
            help="as ssh takes it; default: every node that was installed from this machine",
        )
        parser.flag("--wait", help="wait until no job runs there, instead of refusing")
        common_options(parser)

    def run(self, context: Context, args: Namespace) -> Outcome:
        """Upgrade all machines at once; agents restart, and adopt what runs."""
        from jupyter_mntrain.verbs.nodes.installing import work
        from jupyter_mntrain.verbs.nodes.installing.host_book import HostBook
        from jupyter_mntrain.verbs.nodes.installing.plan import NodeChoices, member_of

        cluster = joined_cluster(context, args)
        targets = work.unique(args.hosts) or HostBook().all(cluster.name)
        if not targets:
            raise SpecError(
                f"no node of cluster {cluster.name} was installed from this machine",
                fix="name the machines: mntrain upgrade USER@HOST",
            )
        wheel = work.own_wheel()

        def do(host: Host) -> InstalledHost:
            facts = host.checked(waits=args.wait and not args.dry_run)
            if member_of(facts, host.wanted) is None:
                raise NodeError(
                    "it is not a node of this cluster yet",
                    kind=Kind.NOT_JOINED,
                    fix=f"install it first: mntrain install {host.name}",
                    node=host.name,
                )
            if args.dry_run:
                return work.dry_run(host, host.steps(facts, wheel), wheel)
            return host.install(facts, wheel, cluster, "")

        wanted = work.wanted_of(cluster, wheel)
        choices = NodeChoices(without_systemd=args.without_systemd)
        return work.work(context, args, targets, wanted, choices, do)
