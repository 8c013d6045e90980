"""``invite``: prints a token for a node or a driver, and waits for the machines that join."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, ClassVar

from rich.console import Group
from rich.text import Text

from jupyter_mntrain.command_line.parser import Parser, bounded_int, typed
from jupyter_mntrain.command_line.token_input import piped
from jupyter_mntrain.model.api import DEFAULT_PORT
from jupyter_mntrain.model.quantities import parse_duration
from jupyter_mntrain.show import formats
from jupyter_mntrain.verbs.verb import Context, Outcome, Verb

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Cluster
    from jupyter_mntrain.trust.certificates import Role
    from jupyter_mntrain.trust.joining.token import Token

LOOK_EVERY_S = 0.1
"""Interval of looking for machines that join while `invite` waits."""


class InviteVerb(Verb):
    role: ClassVar[Role] = "node"
    joins: ClassVar[str] = "mntrain agent join --service"
    where: ClassVar[str] = "Run this on the machine that will be a node:"
    takes_read_only: ClassVar[bool] = False

    def add_arguments(self, parser: Parser) -> None:
        from jupyter_mntrain.trust.registrar import INVITE_LIFE_S, MOST_USES

        parser.option(
            "--uses",
            type=bounded_int(1, MOST_USES),
            default=1,
            metavar="N",
            help="number of machines that may join with it; default: 1",
        )
        parser.option(
            "--expires",
            type=typed(parse_duration),
            default=INVITE_LIFE_S,
            metavar="DURATION",
            help=f"validity, like 30m, 2h or 7d; default: {INVITE_LIFE_S / 3600:g}h",
        )
        parser.option(
            "--replace",
            metavar="NAME",
            completes="node",
            help="the machine replaces this member, whose keys are lost: it may have the same id, "
            "and the old certificates are revoked when it joins",
        )
        if self.takes_read_only:
            parser.flag(
                "--read-only",
                help="the driver may watch nodes, jobs and logs without their secrets, and do "
                "nothing else",
            )
        parser.flag("--no-wait", help="print it and exit; a running notebook admits the machines")

    def run(self, context: Context, args: Namespace) -> Outcome:
        """Print a token; at a terminal, also wait and admit the machines that join with it."""
        from jupyter_mntrain.trust.joining.token import read_token

        cluster = context.cluster(args)
        role: Role = "viewer" if getattr(args, "read_only", False) else self.role
        text = cluster.membership.invite(
            role, uses=args.uses, expires_in_s=args.expires, replaces=args.replace
        )
        token = read_token(text)
        expires_s = token.expires_s
        data = {"token": text, "role": role, "uses": args.uses, "expires_s": expires_s}
        stays = not (context.screen.in_background or args.json or args.no_wait)
        explained = self._explained(text, args, stays=stays)
        if not stays:
            return Outcome(explained, data)
        context.screen.say(explained)
        return Outcome(Text(), data | {"joined": _let_in(context, cluster, token)})

    def _needs(self) -> tuple[str, ...]:
        """Return what the machine needs, one line each."""
        from jupyter_mntrain.verbs.nodes.installing.facts import needed_versions

        versions = " and ".join(f"{name} {one}" for name, one in needed_versions().items())
        return (
            f"It needs TCP port {DEFAULT_PORT} open to the notebook machine, and these versions: "
            + versions,
            "The wheel: in a clone of jupyter_mntrain, scripts/wheel builds it.",
            "--service: the agent outlives your login; without it, it ends with the ssh session.",
            "If ssh reaches it, one command from here does all of this: mntrain install USER@HOST",
        )

    def _explained(self, token: str, args: Namespace, *, stays: bool) -> Group:
        runs = "this command, or a" if stays else "a"
        comma = "," if stays else ""
        noun = f"{self.role}s" if args.uses > 1 else self.role
        needs = [Text(f"{line}\n", style="dim") for line in self._needs()]
        return Group(
            Text(self.where, style="bold"),
            Text(f"\n    pip install jupyter_mntrain-*.whl && {piped(token, self.joins)}\n"),
            *needs,
            Text(
                f"Valid for {args.uses} {noun}, for {formats.duration(args.expires)}. Anyone with "
                f"this line can join: send it like a password. To keep it out of the shell's "
                f"history, run {self.joins} and paste the token when it asks. Machines are "
                f"admitted only while {runs} notebook or JupyterLab of yours that uses the "
                f"cluster{comma} is running.",
                style="dim",
            ),
        )


def _let_in(context: Context, cluster: Cluster, token: Token) -> list[str]:
    """Admit machines until the invitation is used up or expires; Ctrl-C only ends the waiting."""
    seen: list[str] = []
    context.screen.say(
        Text("Waiting for a machine to join. Press Ctrl-C to stop waiting.", style="dim")
    )
    try:
        while context.clock() < token.expires_s:
            identity = cluster.membership.identity
            registrar = identity.registrar if identity else None
            invite = registrar.invitation(token.id) if registrar else None
            # Joined, not just admitted: exiting earlier could keep a machine from its certificate.
            joined = invite.joined if invite else ()
            titles = {member.subject.uri: member.title for member in cluster.membership.members()}
            for uri in joined:
                if uri not in seen:
                    seen.append(uri)
                    name = titles.get(uri, uri)
                    context.screen.say(Text.assemble(("✓ ", "green"), (name, "bold"), " joined"))
            if invite is not None and len(joined) >= invite.uses:
                break
            context.sleep(LOOK_EVERY_S)
    except KeyboardInterrupt:
        context.screen.say(Text("The invitation stays valid.", style="dim"))
    return seen
