"""``install``: turns machines into nodes through ssh."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from jupyter_mntrain.command_line.parser import Parser, bounded_int, typed
from jupyter_mntrain.model.api import DEFAULT_PORT, LAST_PORT
from jupyter_mntrain.model.errors import NodeError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.verbs.nodes.installing.target import parse_target
from jupyter_mntrain.verbs.verb import Context, Outcome, Verb

if TYPE_CHECKING:
    from jupyter_mntrain.verbs.nodes.installing.facts import Facts
    from jupyter_mntrain.verbs.nodes.installing.host import Host, InstalledHost


def common_options(parser: Parser) -> None:
    """Add the options that installing and upgrading share."""
    parser.flag(
        "--dry-run",
        help="look at the machines, and print each command that would run there; change nothing",
    )
    parser.flag("--without-systemd", help="start the agent on its own, also where systemd runs")


class InstallVerb(Verb):
    def add_arguments(self, parser: Parser) -> None:
        parser.argument(
            "hosts",
            nargs="+",
            metavar="USER@HOST[:PORT]",
            type=typed(parse_target),
            help="as ssh takes it; keys, jumps and aliases are ssh's own configuration",
        )
        parser.option(
            "--python",
            metavar="FILE",
            help="interpreter there whose environment is used; default: a new one",
        )
        parser.option(
            "--directory",
            metavar="DIRECTORY",
            help="where to create the environment; default: ~/.local/share/mntrain/env",
        )
        parser.option("--name", metavar="NAME", help="name of the node; default: the host's name")
        parser.option(
            "--port",
            type=bounded_int(1, LAST_PORT),
            metavar="PORT",
            help=f"port of its agent; default: {DEFAULT_PORT}",
        )
        common_options(parser)

    def run(self, context: Context, args: Namespace) -> Outcome:
        """Install on all machines at once; those that are up to date stay as they are."""
        from jupyter_mntrain.verbs.nodes.installing import work
        from jupyter_mntrain.verbs.nodes.installing.plan import TOKEN_LIFE_S, NodeChoices

        targets = work.unique(args.hosts)
        if args.name and len(targets) > 1:
            raise SpecError("two nodes cannot have one name", fix="install them one by one")
        if args.python and args.directory:
            raise SpecError("--python and --directory cannot be used together", fix="leave one out")
        cluster = context.cluster(args)
        token = ""
        if not args.dry_run:
            uses = len(targets)
            token = cluster.membership.invite(uses=uses, expires_in_s=TOKEN_LIFE_S)
        wheel = work.own_wheel()
        choices = NodeChoices(name=args.name, port=args.port, without_systemd=args.without_systemd)

        def do(host: Host) -> InstalledHost:
            facts = host.checked()
            _refuse_foreign(host, facts, is_named=args.python is not None)
            if args.dry_run:
                return work.dry_run(host, host.steps(facts, wheel), wheel)
            return host.install(facts, wheel, cluster, token)

        wanted = work.wanted_of(cluster, wheel)
        return work.work(context, args, targets, wanted, choices, do)


def _refuse_foreign(host: Host, facts: Facts, *, is_named: bool) -> None:
    """Refuse to change packages of an environment that is neither ours nor named by the user."""
    from jupyter_mntrain.verbs.nodes.installing.plan import changes_packages

    if host.wanted.is_given and not is_named and changes_packages(facts, host.wanted):
        raise NodeError(
            f"its node runs under {facts.used}, which was not made by mntrain install, and has "
            "other versions",
            kind=Kind.OTHER_PACKAGES,
            fix=f"to change the packages there: mntrain upgrade {host.name}",
            node=host.name,
        )
