"""What makes this user a driver of a cluster: a directory with a key, and perhaps the authority's.

``clusters/NAME/`` in the user's configuration directory holds the driver's credentials. On the
machine that made the cluster it also holds ``authority.key`` and the register of members.
"""

from __future__ import annotations

import getpass
import re
import shutil
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import platformdirs

from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.api import TrustNews
from jupyter_mntrain.model.errors import SpecError, TrustError
from jupyter_mntrain.trust.certificates import (
    CERTIFICATE_LIFETIME,
    Authority,
    Role,
    Subject,
    due_for_renewal,
    fingerprint,
    key_pem,
    load_certificate,
    load_key,
    load_revocations,
    new_key,
    pem_of,
    request,
)
from jupyter_mntrain.trust.credentials import Credentials, read_private, write_private
from jupyter_mntrain.trust.joining.messages import Admission, Application
from jupyter_mntrain.trust.joining.token import Token, new_token
from jupyter_mntrain.trust.kept_file import KeptFile
from jupyter_mntrain.trust.member_register import IssuedInvitation, Register, RegisteredMember

AUTHORITY_KEY = "authority.key"
INVITE_LIFE_S = 3600.0
MOST_USES = tunables.count("trust.invitation_uses")

Clock = Callable[[], float]
"""Unix time."""


def clusters_directory() -> Path:
    return platformdirs.user_config_path("mntrain") / "clusters"


def own_driver_name() -> str:
    """``user-host``, without what cannot stand in a name."""
    text = re.sub(r"[^A-Za-z0-9._-]", "-", f"{getpass.getuser()}-{socket.gethostname()}")
    return text[:63].strip("-._") or "driver"


class Identity:
    """A driver of one cluster.

    Args:
        directory: where it is kept.
        lifetime: of certificates it signs.

    Raises:
        TrustError: it is damaged, or others may read its keys.
    """

    def __init__(
        self,
        directory: Path,
        *,
        clock: Clock = time.time,
        lifetime: timedelta = CERTIFICATE_LIFETIME,
    ) -> None:
        self.directory = directory
        self.credentials = Credentials(directory)
        self._clock = clock
        self._lifetime = lifetime
        self._file = KeptFile(directory / "register.json", Register, what="the cluster's register")
        self._authority = self._read_authority()
        self._expiries: tuple[int, Mapping[str, float]] | None = None
        """As of the register's last change."""

    @classmethod
    def find(cls, cluster: str, *, clock: Clock = time.time) -> Identity | None:
        """This user's, if he is a driver of a cluster he calls so.

        Raises:
            TrustError: it is damaged, or others may read its keys.
        """
        directory = clusters_directory() / cluster
        return cls(directory, clock=clock) if Credentials.exist(directory) else None

    @classmethod
    def find_or_make(cls, cluster: str, *, clock: Clock = time.time) -> Identity:
        """This user's; where there is none, a new cluster is made.

        Raises:
            TrustError: it is damaged, or others may read its keys.
        """
        return cls.find(cluster, clock=clock) or cls.make(cluster, clock=clock)

    @classmethod
    def make(cls, cluster: str, *, clock: Clock = time.time) -> Identity:
        """A new cluster with an authority of its own; this driver is its first member."""
        directory = clusters_directory() / cluster
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = KeptFile(directory / "register.json", Register, what="the cluster's register")
        with file.locked():
            if not Credentials.exist(directory):  # another process was quicker
                _make(directory, file, cluster, clock())
        return cls(directory, clock=clock)

    @property
    def name(self) -> str:
        """The driver's own."""
        return self.credentials.subject.name

    @property
    def may_invite(self) -> bool:
        return self._authority is not None

    def refresh(self) -> bool:
        """Read what another process has changed; whether anything was."""
        return self.credentials.refresh()

    def invite(
        self, role: Role = "node", *, uses: int = 1, expires_in_s: float = INVITE_LIFE_S
    ) -> Token:
        """A token that lets somebody join.

        Raises:
            SpecError: no uses, or no time.
            TrustError: another driver made the cluster.
        """
        if not 1 <= uses <= MOST_USES:
            raise SpecError(f"{uses} uses", fix=f"choose 1 to {MOST_USES} uses")
        if expires_in_s < 1:
            raise SpecError("the invitation would expire immediately", fix="choose a later expiry")
        authority = self._signing()
        now_s = self._clock()
        token = new_token(role, fingerprint(authority.certificate), now_s + expires_in_s)
        with self._file.locked():
            register = self._file.read()
            open_ones = tuple(i for i in register.invites if now_s < i.token.expires_s)
            invites = (*open_ones, IssuedInvitation(token=token, uses=uses))
            self._file.write(msgspec.structs.replace(register, invites=invites))
        return token

    def invites(self) -> Sequence[IssuedInvitation]:
        return self._file.read().invites if self.may_invite else ()

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
        authority, cluster = self._signing(), self.credentials.authority
        subject = application.subject
        with self._file.locked():
            register = self._file.read()
            known = next((i for i in register.invites if i.token == invite.token), invite)
            refusal = self._refusal(register, known, application)
            if refusal is not None:
                return Admission(cluster=_common_name(self.credentials), **refusal)
            certificate = pem_of(
                authority.issue(
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
            cluster=_common_name(self.credentials),
            certificate=certificate,
            authority=pem_of(cluster),
            revocations=self.credentials.revocations_pem(),
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
        """Everybody who ever joined; empty where another driver made the cluster."""
        return self._file.read().members if self.may_invite else ()

    def revoke(self, name: str) -> RegisteredMember:
        """Nobody believes a member's certificate any more, from when they hear of it.

        Args:
            name: of a driver, or a node's name or id.

        Raises:
            SpecError: nobody is called so, or several are, or it is this driver.
            TrustError: another driver made the cluster.
        """
        authority = self._signing()
        with self._file.locked():
            register = self._file.read()
            member = _find(register, name)
            if member.subject == self.credentials.subject:
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
            before = load_revocations(self.credentials.revocations_pem())
            newer = authority.revocations(serials, number, self._now(), after=before)
            self.credentials.take_revocations(pem_of(newer))
        return gone

    def renew(self) -> bool:
        """Sign anew whose certificate has lived half of its time; whether there was any."""
        if self._authority is None:
            return False
        now = self._now()

        def renewed(member: RegisteredMember) -> RegisteredMember:
            certificate = load_certificate(member.certificate)
            if member.is_revoked or not due_for_renewal(certificate, now):
                return member
            newer = self._signing().renew(certificate, now=now, lifetime=self._lifetime)
            return msgspec.structs.replace(
                member, certificate=pem_of(newer), earlier=member.serials
            )

        with self._file.locked():
            register = self._file.read()
            members = tuple(map(renewed, register.members))
            if members == register.members:
                return False
            self._file.write(msgspec.structs.replace(register, members=members))
        own = msgspec.structs.replace(register, members=members).member(self.credentials.subject)
        if own is not None:
            self.credentials.take_certificate(own.certificate)
        return True

    def news_for(self, node_id: str) -> TrustNews:
        """What a node should know: who was revoked; its own newest certificate, and drivers'."""
        wanted = [
            member.certificate
            for member in self.members()
            if not member.is_revoked and (member.role == "driver" or member.name == node_id)
        ]
        return TrustNews(revocations=self.credentials.revocations_pem(), certificates=tuple(wanted))

    def expiries(self) -> Mapping[str, float]:
        """Unix times at which the members' newest certificates end, by name."""
        if not self.may_invite:
            return {}
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

    def take_news(self, news: TrustNews) -> None:
        """What a node knows from other drivers.

        Raises:
            TrustError: it is not signed by this cluster's authority.
        """
        self.credentials.take_revocations(news.revocations)
        for certificate in news.certificates:
            found = load_certificate(certificate)
            if found.public_key() == self.credentials.key.public_key():
                self.credentials.take_certificate(certificate)

    @property
    def is_due(self) -> bool:
        """Whether this driver's own certificate has lived half of its time."""
        return due_for_renewal(self.credentials.certificate, self._now())

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

    def _read_authority(self) -> Authority | None:
        path = self.directory / AUTHORITY_KEY
        if not path.exists():
            return None
        key = load_key(read_private(path).encode())
        return Authority(key, self.credentials.authority)

    def _signing(self) -> Authority:
        if self._authority is None:
            raise TrustError(
                f"this driver did not make cluster {_common_name(self.credentials)!r}, and only "
                "the one that did can invite and revoke",
                fix="do it on the machine where the cluster was made",
            )
        return self._authority

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock(), UTC)


def room_for(cluster: str) -> Path:
    """Where an identity can be kept that another driver gives, under a name of our choice.

    A cluster of one's own that nobody has joined makes way for it.

    Raises:
        SpecError: there is another cluster of this name, and it has members.
    """
    target = clusters_directory() / cluster
    if Credentials.exist(target):
        if len(Identity(target).members()) != 1:
            raise SpecError(
                f"a different cluster named {cluster!r} already exists here",
                fix=f"join under another name: mntrain --cluster {cluster}2 driver join TOKEN",
            )
        shutil.move(target, target.with_name(f"{target.name}.empty-{int(time.time())}"))
    return target


def _make(directory: Path, file: KeptFile[Register], cluster: str, now_s: float) -> None:
    now = datetime.fromtimestamp(now_s, UTC)
    authority = Authority.make(cluster, now)
    key, subject = new_key(), Subject(role="driver", name=own_driver_name())
    certificate = pem_of(authority.issue(request(key, subject), subject, now=now))
    own = RegisteredMember(
        role="driver",
        name=subject.name,
        title=subject.name,
        certificate=certificate,
        joined_s=now_s,
    )
    register = Register(members=(own,))
    file.write(register)
    write_private(directory / AUTHORITY_KEY, key_pem(authority.key).decode())
    Credentials.write(
        directory,
        key,
        certificate=certificate,
        authority=pem_of(authority.certificate),
        revocations=pem_of(authority.revocations((), register.number, now)),
    )


def _find(register: Register, name: str) -> RegisteredMember:
    named = [m for m in register.members if name in (m.name, m.title) and not m.is_revoked]
    if len(named) == 1:
        return named[0]
    known = ", ".join(sorted(m.title for m in register.members if not m.is_revoked))
    if not named:
        raise SpecError(f"no member of the cluster is named {name!r}", fix=f"one of: {known}")
    ids = ", ".join(member.name for member in named)
    raise SpecError(f"several members are named {name!r}", fix=f"name one by its id: {ids}")


def _common_name(credentials: Credentials) -> str:
    """The cluster's name, as its maker calls it."""
    return str(credentials.authority.subject.rfc4514_string().partition("=")[2])
