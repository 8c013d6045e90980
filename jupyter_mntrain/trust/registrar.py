"""The registrar's desk of the driver that made a cluster: it invites, admits, renews and revokes.

Only that driver holds the authority's key; the register of invitations and members is its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.trust.authority import Authority
from jupyter_mntrain.trust.certificates import (
    Role,
    Subject,
    due_for_renewal,
    fingerprint,
    load_certificate,
    load_revocations,
    pem_of,
)
from jupyter_mntrain.trust.credentials import Credentials
from jupyter_mntrain.trust.joining.messages import Admission, Application
from jupyter_mntrain.trust.joining.token import Token, new_token
from jupyter_mntrain.trust.kept_file import KeptFile
from jupyter_mntrain.trust.member_register import IssuedInvitation, Register, RegisteredMember

INVITE_LIFE_S = 3600.0
MOST_USES = tunables.count("trust.invitation_uses")

Clock = Callable[[], float]
"""Unix time."""


class Registrar:
    """Signs for one cluster.

    Args:
        authority: its key signs.
        credentials: of the driver itself, who learns first of what it signs.
        file: the register.
        clock: Unix time.
        lifetime: of certificates it signs.
    """

    def __init__(
        self,
        authority: Authority,
        credentials: Credentials,
        file: KeptFile[Register],
        *,
        clock: Clock,
        lifetime: timedelta,
    ) -> None:
        self._authority = authority
        self._credentials = credentials
        self._file = file
        self._clock = clock
        self._lifetime = lifetime
        self._expiries: tuple[int, Mapping[str, float]] | None = None
        """As of the register's last change."""

    def invite(
        self, role: Role = "node", *, uses: int = 1, expires_in_s: float = INVITE_LIFE_S
    ) -> Token:
        """A token that lets somebody join.

        Raises:
            SpecError: no uses, or no time.
        """
        if not 1 <= uses <= MOST_USES:
            raise SpecError(f"{uses} uses", fix=f"choose 1 to {MOST_USES} uses")
        if expires_in_s < 1:
            raise SpecError("the invitation would expire immediately", fix="choose a later expiry")
        now_s = self._clock()
        token = new_token(role, fingerprint(self._authority.certificate), now_s + expires_in_s)
        with self._file.locked():
            register = self._file.read()
            open_ones = tuple(i for i in register.invites if now_s < i.token.expires_s)
            invites = (*open_ones, IssuedInvitation(token=token, uses=uses))
            self._file.write(msgspec.structs.replace(register, invites=invites))
        return token

    def invites(self) -> Sequence[IssuedInvitation]:
        return self._file.read().invites

    def open_invites(self) -> Sequence[IssuedInvitation]:
        """Those by which somebody can still join."""
        now_s = self._clock()
        return [i for i in self.invites() if now_s < i.token.expires_s and len(i.joined) < i.uses]

    def invitation(self, token_id: str) -> IssuedInvitation | None:
        """What was given out under this id, if it can still be used by somebody."""
        now_s = self._clock()
        found = next((i for i in self.invites() if i.token.id == token_id), None)
        return found if found and now_s < found.token.expires_s else None

    def admit(self, invite: IssuedInvitation, application: Application) -> Admission:
        """Sign whoever has proved to hold the token, or say why not.

        Who is signed has joined when it has its certificate: see :meth:`note_joined`.
        """
        subject = application.subject
        with self._file.locked():
            register = self._file.read()
            known = next((i for i in register.invites if i.token == invite.token), invite)
            refusal = self._refusal(register, known, application)
            if refusal is not None:
                return Admission(cluster=self._credentials.cluster_name, **refusal)
            certificate = pem_of(
                self._authority.issue(
                    application.request, subject, now=self._now(), lifetime=self._lifetime
                )
            )
            taken = dict.fromkeys([*known.taken, subject.uri])
            invites = [i for i in register.invites if i.token != invite.token]
            member = RegisteredMember(
                role=subject.role,
                name=subject.name,
                title=application.name,
                certificate=certificate,
                joined_s=self._clock(),
                earlier=before.serials if (before := register.member(subject)) else (),
            )
            others = tuple(m for m in register.members if m.subject != subject or m.is_revoked)
            self._file.write(
                msgspec.structs.replace(
                    register,
                    invites=(*invites, msgspec.structs.replace(known, taken=tuple(taken))),
                    members=(*others, member),
                )
            )
        return Admission(
            cluster=self._credentials.cluster_name,
            certificate=certificate,
            authority=pem_of(self._authority.certificate),
            revocations=self._credentials.revocations_pem(),
        )

    def note_joined(self, invite: IssuedInvitation, subject: Subject) -> None:
        """It has been given what :meth:`admit` signed."""
        with self._file.locked():
            register = self._file.read()
            invites = tuple(
                msgspec.structs.replace(i, joined=tuple(dict.fromkeys([*i.joined, subject.uri])))
                if i.token == invite.token
                else i
                for i in register.invites
            )
            self._file.write(msgspec.structs.replace(register, invites=invites))

    def members(self) -> Sequence[RegisteredMember]:
        """Everybody who ever joined."""
        return self._file.read().members

    def revoke(self, name: str) -> RegisteredMember:
        """Nobody believes a member's certificate any more, from when they hear of it.

        Args:
            name: of a driver, or a node's name or id.

        Raises:
            SpecError: nobody is called so, or several are, or it is this driver.
        """
        with self._file.locked():
            register = self._file.read()
            member = _find(register, name)
            if member.subject == self._credentials.subject:
                raise SpecError(
                    f"{name} is this driver, which holds the cluster's authority",
                    fix="to give the whole cluster up, see docs/security.md, Rotating",
                )
            revoked = (*register.revoked, *member.serials)
            number = register.number + 1
            gone = msgspec.structs.replace(member, revoked_s=self._clock())
            members = tuple(gone if one is member else one for one in register.members)
            self._file.write(
                msgspec.structs.replace(register, members=members, revoked=revoked, number=number)
            )
            serials = [int(one, 16) for one in revoked]
            before = load_revocations(self._credentials.revocations_pem())
            newer = self._authority.revocations(serials, number, self._now(), after=before)
            self._credentials.take_revocations(pem_of(newer))
        return gone

    def renew(self) -> bool:
        """Sign anew whose certificate has lived half of its time; whether there was any."""
        now = self._now()

        def renewed(member: RegisteredMember) -> RegisteredMember:
            certificate = load_certificate(member.certificate)
            if member.is_revoked or not due_for_renewal(certificate, now):
                return member
            newer = self._authority.renew(certificate, now=now, lifetime=self._lifetime)
            return msgspec.structs.replace(
                member, certificate=pem_of(newer), earlier=member.serials
            )

        with self._file.locked():
            register = self._file.read()
            members = tuple(map(renewed, register.members))
            if members == register.members:
                return False
            self._file.write(msgspec.structs.replace(register, members=members))
        own = msgspec.structs.replace(register, members=members).member(self._credentials.subject)
        if own is not None:
            self._credentials.take_certificate(own.certificate)
        return True

    def expiries(self) -> Mapping[str, float]:
        """Unix times at which the members' newest certificates end, by name."""
        changed = self._file.path.stat().st_mtime_ns
        if self._expiries is None or self._expiries[0] != changed:
            self._expiries = (
                changed,
                {
                    m.name: load_certificate(m.certificate).not_valid_after_utc.timestamp()
                    for m in self.members()
                    if not m.is_revoked
                },
            )
        return self._expiries[1]

    def _refusal(
        self, register: Register, invite: IssuedInvitation, application: Application
    ) -> dict[str, str] | None:
        subject = application.subject
        if not invite.admits(subject, self._clock()):
            return {
                "refusal": "the invitation has expired, was used up, or is for another role",
                "fix": "ask for a new one: mntrain invite, or mntrain driver invite",
            }
        other = register.member(subject)
        if subject.role == "driver" and other is not None and subject.uri not in invite.taken:
            return {
                "refusal": f"the cluster already has a driver named {subject.name}",
                "fix": f"join with another --name, or first: mntrain driver revoke {subject.name}",
            }
        return None

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock(), UTC)


def _find(register: Register, name: str) -> RegisteredMember:
    named = [m for m in register.members if name in (m.name, m.title) and not m.is_revoked]
    if len(named) == 1:
        return named[0]
    known = ", ".join(sorted(m.title for m in register.members if not m.is_revoked))
    if not named:
        raise SpecError(f"no member of the cluster is named {name!r}", fix=f"one of: {known}")
    ids = ", ".join(member.name for member in named)
    raise SpecError(f"several members are named {name!r}", fix=f"name one by its id: {ids}")
