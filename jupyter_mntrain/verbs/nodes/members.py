"""``invite``, ``members``, ``revoke``: who belongs to the cluster."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from jupyter_mntrain.command_line.parser import Parser, typed
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.quantities import parse_duration
from jupyter_mntrain.show import formats
from jupyter_mntrain.show.tables._plain import plain_table
from jupyter_mntrain.trust.certificates import Role
from jupyter_mntrain.trust.joining.token import read_token
from jupyter_mntrain.verbs.context import Context
from jupyter_mntrain.verbs.verb import Outcome, Verb

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Cluster

LOOK_EVERY_S = 0.1
JOINS: dict[Role, str] = {
    "node": "pip install jupyter-mntrain && mntrain agent join",
    "driver": "pip install jupyter-mntrain && mntrain driver join",
}
WHERE: dict[Role, str] = {
    "node": "Run this on the machine that will be a node:",
    "driver": "Run this on the other machine that will launch and watch jobs:",
}


def invite_options(parser: Parser) -> None:
    parser.option(
        "--uses", type=int, default=1, metavar="N", help="how many machines may join with it (1)"
    )
    parser.option(
        "--expires",
        type=typed(parse_duration),
        default=3600.0,
        metavar="TIME",
        help="validity, like 30m, 2h or 7d (1h)",
    )
    parser.option(
        "--no-wait",
        action="store_true",
        help="print it and exit; a running notebook admits the machines",
    )


def invite(context: Context, args: Namespace, role: Role) -> Outcome:
    """Print a token; at a terminal, stay to let in who comes with it."""
    cluster = context.cluster(args)
    token = cluster.membership.invite(role, uses=args.uses, expires_in_s=args.expires)
    data = _token_data(token, args, role)
    stays = not (context.screen.in_background or args.json or args.no_wait)
    lines = _explained(token, args, role, stays=stays)
    if not stays:
        return Outcome(Group(*lines), data)
    for line in lines:
        context.screen.say(line)
    joined = _let_in(context, cluster, token)
    return Outcome(Text(), data | {"joined": joined})


def _explained(token: str, args: Namespace, role: Role, *, stays: bool) -> list[RenderableType]:
    whoever = "this or any notebook or JupyterLab" if stays else "any notebook or JupyterLab"
    noun = f"{role}s" if args.uses > 1 else role
    return [
        Text(WHERE[role], style="bold"),
        Text(f"\n    {JOINS[role]} {token}\n"),
        Text(
            f"Good for {args.uses} {noun}, for {formats.duration(args.expires)}. Whoever has this "
            f"line can join: send it as you would a password. Who comes is let in while {whoever} "
            "of yours that uses the cluster runs.",
            style="dim",
        ),
    ]


def _token_data(token: str, args: Namespace, role: Role) -> dict[str, Any]:
    expires_s = read_token(token).expires_s
    return {"token": token, "role": role, "uses": args.uses, "expires_s": expires_s}


def _let_in(context: Context, cluster: Cluster, token: str) -> list[str]:
    """Until it is used up or has expired; Ctrl-C ends the waiting, not the invitation."""
    known = read_token(token)
    seen: list[str] = []
    context.screen.say(Text("Waiting for it… Press Ctrl-C to stop waiting.", style="dim"))
    try:
        while context.clock() < known.expires_s:
            identity = cluster.membership.identity
            registrar = identity.registrar if identity else None
            invite = registrar.invitation(known.id) if registrar else None
            # Not those admitted: to end now might keep their certificate from them.
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


class InviteVerb(Verb):
    name = "invite"
    help = "print a token with which a machine joins the cluster as a node"

    def add_arguments(self, parser: Parser) -> None:
        invite_options(parser)

    def run(self, context: Context, args: Namespace) -> Outcome:
        return invite(context, args, "node")


class MembersVerb(Verb):
    name = "members"
    help = "list the members of the cluster and when their certificates expire"

    def add_arguments(self, parser: Parser) -> None:
        pass

    def run(self, context: Context, args: Namespace) -> Outcome:
        from jupyter_mntrain.trust.certificates import load_certificate

        cluster = context.cluster(args)
        identity = cluster.membership.identity
        if identity is None:
            raise SpecError(
                f"no cluster named {cluster.name!r} exists on this machine yet",
                fix=f"create it by inviting a node: {context.program} invite",
            )
        table = plain_table("member", "role", "joined", "certificate")
        data = []
        for member in cluster.membership.members():
            until = load_certificate(member.certificate).not_valid_after_utc
            state = "revoked" if member.is_revoked else f"until {until:%Y-%m-%d}"
            joined = formats.duration(context.clock() - member.joined_s)
            name = Text.assemble((member.title, "bold"))
            name.append(" (this driver)" if member.subject == identity.credentials.subject else "")
            table.add_row(name, member.role, f"{joined} ago", state)
            data.append(
                {
                    "name": member.title,
                    "id": member.name,
                    "role": member.role,
                    "joined_s": member.joined_s,
                    "expires_s": until.timestamp(),
                    "revoked_s": member.revoked_s,
                }
            )
        if identity.registrar is None:
            note = f"This driver is {identity.name}. Who else belongs to {cluster.name} is known "
            return Outcome(Text(note + "to the driver that made it."), data)
        return Outcome(table, data)


class RevokeVerb(Verb):
    name = "revoke"
    help = "revoke the certificate of a node or driver"

    def add_arguments(self, parser: Parser) -> None:
        parser.argument("member", metavar="NAME", completes="node", help="as in: members")

    def run(self, context: Context, args: Namespace) -> Outcome:
        return revoke(context, args, args.member)


def revoke(context: Context, args: Namespace, name: str) -> Outcome:
    """Tell every node that answers; the others hear it when they do."""
    from jupyter_mntrain.verbs.find import reachable_nodes

    cluster = context.cluster(args)
    reachable_nodes(context, cluster)
    gone = cluster.membership.revoke(name)
    told = [node for node in cluster.nodes() if node.liveness == "up"]
    silent = [node.name for node in cluster.nodes() if node.liveness != "up"]
    text = Text.assemble(
        ("✓ ", "green"),
        (gone.title, "bold"),
        f" is revoked; {formats.plural(len(told), 'node')} know it.",
    )
    if silent:
        text.append(
            f" Not yet: {', '.join(silent)}; they will learn it when a driver reaches them.",
            "yellow",
        )
    return Outcome(text, {"revoked": gone.title, "id": gone.name, "not_told": silent})
