"""``driver``: invites and revokes drivers, or joins as one."""

from __future__ import annotations

from argparse import Namespace

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.verbs.context import Context
from jupyter_mntrain.verbs.membership.driver_join import JoinAsDriver
from jupyter_mntrain.verbs.membership.invitation import invite, invite_options
from jupyter_mntrain.verbs.membership.revoke import RevokeVerb
from jupyter_mntrain.verbs.verb import Outcome, Verb, VerbGroup


class InviteDriver(Verb):
    name = "invite"
    help = "print a token that lets another machine join as a driver"

    def add_arguments(self, parser: Parser) -> None:
        invite_options(parser)

    def run(self, context: Context, args: Namespace) -> Outcome:
        return invite(context, args, "driver")


class RevokeDriver(RevokeVerb):
    help = "revoke the certificate of a driver"


class DriverVerb(VerbGroup):
    name = "driver"
    help = "manage drivers, which launch and watch jobs: invite, join, revoke"
    members = (InviteDriver(), JoinAsDriver(), RevokeDriver())
