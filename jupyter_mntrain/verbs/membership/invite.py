"""``invite``: invites a node."""

from __future__ import annotations

from argparse import Namespace

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.verbs.context import Context
from jupyter_mntrain.verbs.membership.invitation import invite, invite_options
from jupyter_mntrain.verbs.verb import Outcome, Verb


class InviteVerb(Verb):
    name = "invite"
    help = "print a token with which a machine joins the cluster as a node"

    def add_arguments(self, parser: Parser) -> None:
        invite_options(parser)

    def run(self, context: Context, args: Namespace) -> Outcome:
        return invite(context, args, "node")
