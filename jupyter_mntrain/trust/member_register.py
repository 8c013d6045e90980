"""Member register: invitations and members, stored by the driver that made the cluster."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.trust.certificates import Role, Subject, load_certificate
from jupyter_mntrain.trust.joining.token import Token


class IssuedInvitation(Record, frozen=True):
    """An invitation that was issued, and who has joined with it.

    Args:
        uses: number of members that may join with it.
        taken: URIs of the subjects that were admitted. Joining again after a lost answer does not
            take another use.
        joined: those that confirmed to have received their certificate.
        replaces: URI of the member that the machine replaces: its certificates are revoked then.
    """

    token: Token
    uses: int
    taken: tuple[str, ...] = ()
    joined: tuple[str, ...] = ()
    replaces: str = ""

    def admits(self, subject: Subject, now_s: float) -> bool:
        """Return whether a subject may still join with this invitation."""
        if subject.role != self.token.role or now_s >= self.token.expires_s:
            return False
        return subject.uri in self.taken or len(self.taken) < self.uses


class RegisteredMember(Record, frozen=True):
    """A node or driver of the cluster, with its certificates.

    Args:
        name: a node's id, or a driver's name.
        title: for people.
        certificate: the newest, PEM.
        earlier: hexadecimal serial numbers of earlier certificates, which may still be valid.
    """

    role: Role
    name: str
    title: str
    certificate: str
    joined_s: float
    revoked_s: float | None = None
    earlier: tuple[str, ...] = ()

    @property
    def subject(self) -> Subject:
        return Subject(role=self.role, name=self.name)

    @property
    def serials(self) -> tuple[str, ...]:
        """Serial numbers of all its certificates."""
        return (*self.earlier, f"{load_certificate(self.certificate).serial_number:x}")

    def is_of(self, role: Role | None) -> bool:
        """Return whether the member has a role. ``None`` matches any; read-only drivers are
        drivers.
        """
        return role in (None, self.role) or (role, self.role) == ("driver", "viewer")

    @property
    def is_revoked(self) -> bool:
        return self.revoked_s is not None


class Register(Record, frozen=True):
    """All invitations and members, stored in one file.

    Args:
        revoked: hexadecimal serial numbers of revoked certificates.
        number: of the revocation list; increases with each revocation.
    """

    invites: tuple[IssuedInvitation, ...] = ()
    members: tuple[RegisteredMember, ...] = ()
    revoked: tuple[str, ...] = ()
    number: int = 1

    def caught_up(self, serials: Collection[int], number: int, now_s: float) -> Register:
        """Return the register with the revocations of a newer list added.

        A list that this authority signed may be newer than its register: where the register comes
        from a backup, or two machines hold copies. Lists of lower numbers would never be taken.

        Args:
            serials: of the certificates that the list revokes.
            number: of the list.
        """
        if number <= self.number:
            return self
        gone = {f"{one:x}" for one in serials}
        return msgspec.structs.replace(
            self,
            members=tuple(
                msgspec.structs.replace(m, revoked_s=now_s)
                if not m.is_revoked and gone & {*m.serials}
                else m
                for m in self.members
            ),
            revoked=tuple(dict.fromkeys((*self.revoked, *sorted(gone)))),
            number=number,
        )

    def member(self, subject: Subject) -> RegisteredMember | None:
        """Find a member by its subject, unless it is revoked."""
        return next((m for m in self.members if m.subject == subject and not m.is_revoked), None)

    def namesake(self, subject: Subject) -> RegisteredMember | None:
        """Find a member with the same name and kind (node or driver), unless it is revoked."""
        is_node = subject.role == "node"
        valid = (m for m in self.members if not m.is_revoked and m.name == subject.name)
        return next((m for m in valid if (m.role == "node") == is_node), None)

    def find(self, name: str, role: Role | None = None) -> RegisteredMember:
        """Find a driver by name, or a node by name or id. Revoked members are ignored.

        Raises:
            SpecError: no member or several have this name, or it has another role.
        """
        valid = [m for m in self.members if not m.is_revoked]
        named = [m for m in valid if name in (m.name, m.title)]
        wanted = [m for m in named if m.is_of(role)]
        if len(wanted) == 1:
            return wanted[0]
        if named and not wanted:
            raise SpecError(
                f"{name} is a {named[0].role}, not a {role}",
                fix=f"to revoke it nevertheless, use: mntrain revoke {name}",
            )
        if not named:
            known = ", ".join(sorted(m.title for m in valid if m.is_of(role)))
            raise SpecError(
                f"no {role or 'member'} of the cluster is named {name!r}",
                fix=f"use {known}" if known else "invite one first: mntrain invite",
            )
        ids = ", ".join(member.name for member in named)
        raise SpecError(f"several members are named {name!r}", fix=f"name one by its id: {ids}")
