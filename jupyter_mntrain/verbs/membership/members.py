"""``members``: lists the members of the cluster."""

from __future__ import annotations

from argparse import Namespace

from rich.text import Text

from jupyter_mntrain.show import formats
from jupyter_mntrain.show.tables._plain import plain_table
from jupyter_mntrain.verbs.verb import Context, Outcome, Verb


class MembersVerb(Verb):
    def run(self, context: Context, args: Namespace) -> Outcome:
        from jupyter_mntrain.trust.certificates import load_certificate

        cluster = context.cluster(args)
        identity = cluster.membership.required()
        table = plain_table("member", "role", "joined", "certificate")
        data = []
        for member in cluster.membership.members():
            until = load_certificate(member.certificate).not_valid_after_utc
            state = "revoked" if member.is_revoked else f"until {until:%Y-%m-%d}"
            joined = formats.duration(context.clock() - member.joined_s)
            name = Text.assemble((member.title, "bold"))
            name.append(" (this driver)" if member.subject == identity.credentials.subject else "")
            role = "driver, read-only" if member.role == "viewer" else member.role
            table.add_row(name, role, f"{joined} ago", state)
            data.append(
                {
                    "member": member.title,
                    "member_id": member.name,
                    "role": member.role,
                    "joined_s": member.joined_s,
                    "expires_s": until.timestamp(),
                    "revoked_s": member.revoked_s,
                }
            )
        if identity.registrar is None:
            own = identity.credentials.subject.name
            note = f"This driver is {own}. Only the driver that created {cluster.name} "
            return Outcome(Text(note + "knows its other members."), data)
        return Outcome(table, data)
