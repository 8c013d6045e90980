"""Registrar: invites, admits, renews and revokes members, on the driver that made the cluster.

Only that driver has the authority's key and the register of invitations and members.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

import msgspec

from jupyter_mntrain.model import tunables
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.quantities import duration_text
from jupyter_mntrain.model.text.foreign import shown_name
from jupyter_mntrain.trust.audit import Audit
from jupyter_mntrain.trust.authority import Authority
from jupyter_mntrain.trust.certificates import (
    NAME_FIX,
    Role,
    Subject,
    due_for_renewal,
    fingerprint,
    is_member_name,
    load_certificate,
    load_revocations,
    pem_of,
)
from jupyter_mntrain.trust.credentials import Credentials
from jupyter_mntrain.trust.joining.messages import Admission, Application
from jupyter_mntrain.trust.joining.token import Token, holds_key, new_token
from jupyter_mntrain.trust.shared_file import SharedFile


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


INVITE_LIFE_S = tunables.seconds("trust.invitation_life_s")
MOST_USES = 1000
"""Maximum number of uses of one invitation."""

Clock = Callable[[], float]
"""Unix time."""


@dataclass
class Registrar:
    """Signs certificates of one cluster.

    Args:
        authority: signs them.
        credentials: the driver's own, updated with what it signs.
        file: the register.
        audit: gets a line for each change.
        clock: Unix time.
        lifetime: of certificates that it signs.
    """

    authority: Authority
    credentials: Credentials
    file: SharedFile[Register]
    audit: Audit
    clock: Clock
    lifetime: timedelta
    _expiries: tuple[int, Mapping[str, float]] | None = None
    """Cached result of :meth:`expiries`, with the register's modification time."""

    def invite(
        self,
        role: Role = "node",
        *,
        uses: int = 1,
        expires_in_s: float = INVITE_LIFE_S,
        replaces: str | None = None,
    ) -> Token:
        """Make a token for joining the cluster.

        Args:
            replaces: name of the member that the machine replaces, whose key is lost.

        Raises:
            SpecError: ``uses`` or ``expires_in_s`` is out of range, or there is no such member.
        """
        if not 1 <= uses <= MOST_USES:
            raise SpecError(f"uses={uses} is out of range", fix=f"use 1 to {MOST_USES}")
        if replaces is not None and uses != 1:
            raise SpecError("only one machine can replace a member", fix="omit --uses")
        if expires_in_s < 1:
            raise SpecError("the invitation would expire immediately", fix="choose a later expiry")
        now_s = self.clock()
        token = new_token(role, fingerprint(self.authority.certificate), now_s + expires_in_s)
        with self.file.locked():
            register = self.file.read()
            open_ones = tuple(i for i in register.invites if now_s < i.token.expires_s)
            gone = self._other(register, replaces, role).subject.uri if replaces else ""
            invites = (*open_ones, IssuedInvitation(token=token, uses=uses, replaces=gone))
            self.file.write(msgspec.structs.replace(register, invites=invites))
        about = {"replaces": gone} if gone else {}
        self._note("invite", role=role, uses=str(uses), invitation=token.id, **about)
        return token

    def invites(self) -> Sequence[IssuedInvitation]:
        return self.file.read().invites

    def open_invites(self) -> Sequence[IssuedInvitation]:
        """Return the invitations that can still be used."""
        now_s = self.clock()
        return [i for i in self.invites() if now_s < i.token.expires_s and len(i.joined) < i.uses]

    def invitation(self, token_id: str) -> IssuedInvitation | None:
        """Find an invitation by its token's id, unless it has expired."""
        found = self.any_invitation(token_id)
        return found if found and self.clock() < found.token.expires_s else None

    def any_invitation(self, token_id: str) -> IssuedInvitation | None:
        """Find an invitation by its token's id, even if it has expired."""
        return next((i for i in self.invites() if i.token.id == token_id), None)

    def admit(
        self, invite: IssuedInvitation, application: Application, *, where: str = ""
    ) -> Admission:
        """Sign the certificate of an applicant that has proved that it holds the token, or refuse.

        It has joined once it has received the certificate: see :meth:`note_joined`.

        Args:
            where: its address, for the audit log.
        """
        admission = self._admit(invite, application)
        outcome = f"refused: {admission.refusal}" if admission.refusal else "admitted"
        self._note(
            "join",
            member=shown_name(application.subject.uri),
            name=shown_name(application.name),
            invitation=invite.token.id,
            where=where,
            outcome=outcome,
        )
        return admission

    def _admit(self, invite: IssuedInvitation, application: Application) -> Admission:
        subject = application.subject
        with self.file.locked():
            register = self._register()
            known = next((i for i in register.invites if i.token == invite.token), invite)
            refusal = self._refusal(register, known, application)
            if refusal is not None:
                return Admission(
                    cluster=self.credentials.cluster_name, time_s=self.clock(), **refusal
                )
            certificate = pem_of(
                self.authority.issue(
                    application.request, subject, now=self._now(), lifetime=self.lifetime
                )
            )
            if _replaces_now(known, application):
                register = _without(register, known.replaces, self.clock())
                self._note("revoke", member=known.replaces, invitation=known.token.id)
            taken = dict.fromkeys([*known.taken, subject.uri])
            invites = [i for i in register.invites if i.token != invite.token]
            member = RegisteredMember(
                role=subject.role,
                name=subject.name,
                title=application.name,
                certificate=certificate,
                joined_s=self.clock(),
                earlier=before.serials if (before := register.member(subject)) else (),
            )
            others = tuple(m for m in register.members if m.subject != subject or m.is_revoked)
            self.file.write(
                msgspec.structs.replace(
                    register,
                    invites=(*invites, msgspec.structs.replace(known, taken=tuple(taken))),
                    members=(*others, member),
                )
            )
            self._publish(register)
        return Admission(
            cluster=self.credentials.cluster_name,
            certificate=certificate,
            authority=pem_of(self.authority.certificate),
            revocations=self.credentials.revocations_pem(),
            time_s=self.clock(),
        )

    def note_joined(self, invite: IssuedInvitation, subject: Subject) -> None:
        """Record that a subject has received the certificate that :meth:`admit` signed."""
        with self.file.locked():
            register = self.file.read()
            invites = tuple(
                msgspec.structs.replace(i, joined=tuple(dict.fromkeys([*i.joined, subject.uri])))
                if i.token == invite.token
                else i
                for i in register.invites
            )
            self.file.write(msgspec.structs.replace(register, invites=invites))
        self._note("join", member=subject.uri, invitation=invite.token.id)

    def note_refused(self, address: str, cause: str) -> None:
        """Record that a machine asked to join without proving that it holds a token."""
        self._note("join", where=address, outcome=f"refused: {cause}")

    def note_copy(self, what: Literal["backup", "restore"], file: str) -> None:
        """Record that the authority was backed up to a file or restored from one."""
        self._note(what, file=file)

    def members(self) -> Sequence[RegisteredMember]:
        """Return all members, including revoked ones."""
        return self._register().members

    def revoke(self, name: str, *, role: Role | None = None) -> RegisteredMember:
        """Revoke a member's certificates. Others reject them once they have the new list.

        Args:
            name: a driver's name, or a node's name or id.
            role: refuse a member of another role; ``None`` takes any.

        Raises:
            SpecError: no member or several have this name, it has another role, or it is this
                driver.
        """
        with self.file.locked():
            register = self._register()
            member = self._other(register, name, role)
            register = _without(register, member.subject.uri, self.clock())
            self.file.write(register)
            self._publish(register)
        self._note("revoke", member=member.subject.uri, name=member.title)
        return msgspec.structs.replace(member, revoked_s=self.clock())

    def renew(self) -> bool:
        """Renew certificates that are due; return whether any were."""
        now = self._now()

        def is_due(member: RegisteredMember) -> bool:
            is_old = due_for_renewal(load_certificate(member.certificate), now)
            return is_old and not member.is_revoked

        if not any(map(is_due, self._register().members)):
            return False

        def renewed(member: RegisteredMember) -> RegisteredMember:
            if not is_due(member):
                return member
            certificate = load_certificate(member.certificate)
            newer = self.authority.renew(certificate, now=now, lifetime=self.lifetime)
            return msgspec.structs.replace(
                member, certificate=pem_of(newer), earlier=member.serials
            )

        with self.file.locked():
            register = self._register()
            members = tuple(map(renewed, register.members))
            if members == register.members:
                return False
            self.file.write(msgspec.structs.replace(register, members=members))
        for before, after in zip(register.members, members, strict=True):
            if before is not after:
                self._note("renew", member=after.subject.uri, name=after.title)
        own = msgspec.structs.replace(register, members=members).member(self.credentials.subject)
        if own is not None:
            self.credentials.take_certificate(own.certificate)
        return True

    def expiries(self) -> Mapping[str, float]:
        """Return the Unix times at which the members' newest certificates expire, by name."""
        changed = self.file.path.stat().st_mtime_ns
        if self._expiries is None or self._expiries[0] != changed:
            self._expiries = (
                changed,
                {
                    m.name: load_certificate(m.certificate).not_valid_after_utc.timestamp()
                    for m in filter(lambda m: not m.is_revoked, self.members())
                },
            )
        return self._expiries[1]

    def _refusal(
        self, register: Register, invite: IssuedInvitation, application: Application
    ) -> dict[str, str] | None:
        subject = application.subject
        if not is_member_name(subject.name):
            return {"refusal": f"{subject.name!r} cannot be a member's name", "fix": NAME_FIX}
        if not is_member_name(application.name):
            name = shown_name(application.name)
            return {"refusal": f"{name!r} cannot be a machine's name", "fix": NAME_FIX}
        fix = "ask for a new one: mntrain invite, or mntrain driver invite"
        if self.clock() >= invite.token.expires_s:
            ago = duration_text(self.clock() - invite.token.expires_s)
            return {"refusal": f"the invitation has expired, {ago} ago", "fix": fix}
        if not invite.admits(subject, self.clock()):
            return {"refusal": "the invitation was used up, or is for another role", "fix": fix}
        other = register.namesake(subject)
        if other is None or _replaces_now(invite, application):
            return None
        proof = other.certificate, application.request, application.endorsement
        if other.subject == subject and holds_key(*proof):
            return None
        if subject.role != "node":
            return {
                "refusal": f"the cluster already has a driver named {subject.name}",
                "fix": f"join with another --name, or first: mntrain driver revoke {subject.name}",
            }
        return {
            "refusal": f"the node id {subject.name} belongs to node {other.title}, and this "
            "machine does not hold its key",
            "fix": f"if this is {other.title} and its keys are lost, invite it with mntrain "
            f"invite --replace {other.title}; if its files were copied from there, run mntrain "
            "agent leave here and join again",
        }

    def _register(self) -> Register:
        """Return the register, including what nodes report that another copy of this authority
        revoked.
        """
        known = self.credentials
        return self.file.read().caught_up(known.revoked, known.revocations, self.clock())

    def _other(self, register: Register, name: str, role: Role | None) -> RegisteredMember:
        member = register.find(name, role)
        if member.subject == self.credentials.subject:
            raise SpecError(
                f"{name} is this driver, which holds the cluster's authority",
                fix="to give up the whole cluster, see docs/security.md, Rotating",
            )
        return member

    def _note(self, what: str, *, where: str = "", outcome: str = "done", **about: str) -> None:
        who = f"driver {self.credentials.subject.name}"
        self.audit.note(what, who=who, where=where, outcome=outcome, **about)

    def _publish(self, register: Register) -> None:
        """Sign a new revocation list if the register has changed since the last one."""
        if register.number <= self.credentials.revocations:
            return
        serials = [int(one, 16) for one in register.revoked]
        before = load_revocations(self.credentials.revocations_pem())
        newer = self.authority.revocations(serials, register.number, self._now(), after=before)
        self.credentials.take_revocations(pem_of(newer))

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self.clock(), UTC)


def _replaces_now(invite: IssuedInvitation, application: Application) -> bool:
    """Return whether this applicant is about to replace a member, and has not done so already."""
    return bool(invite.replaces) and application.subject.uri not in invite.taken


def _without(register: Register, uri: str, now_s: float) -> Register:
    """Return the register with a member revoked."""
    gone = [m for m in register.members if m.subject.uri == uri and not m.is_revoked]
    if not gone:
        return register
    return msgspec.structs.replace(
        register,
        members=tuple(
            msgspec.structs.replace(m, revoked_s=now_s) if m in gone else m
            for m in register.members
        ),
        revoked=(*register.revoked, *(serial for m in gone for serial in m.serials)),
        number=register.number + 1,
    )
