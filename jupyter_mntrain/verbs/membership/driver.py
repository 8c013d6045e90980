"""``driver``: invites and revokes drivers, joins as one, or copies the authority."""

from __future__ import annotations

from jupyter_mntrain.verbs.membership.backup import BackUpAuthority, RestoreAuthority
from jupyter_mntrain.verbs.membership.driver_join import JoinAsDriver
from jupyter_mntrain.verbs.membership.invite import InviteVerb
from jupyter_mntrain.verbs.membership.revoke import RevokeVerb
from jupyter_mntrain.verbs.verb import VerbGroup


class InviteDriver(InviteVerb):
    takes_read_only = True
    name = "invite"
    help = "print a token that lets another machine join as a driver"
    role = "driver"
    joins = "mntrain driver join"
    where = "Run this on the other machine that will launch and watch jobs:"

    def _needs(self) -> tuple[str, ...]:
        return ()


class RevokeDriver(RevokeVerb):
    name = "revoke"
    help = "revoke the certificate of a driver"
    role = "driver"


class DriverVerb(VerbGroup):
    actions = {
        verb.name: verb
        for verb in (
            InviteDriver(),
            JoinAsDriver(),
            RevokeDriver(),
            BackUpAuthority(),
            RestoreAuthority(),
        )
    }
