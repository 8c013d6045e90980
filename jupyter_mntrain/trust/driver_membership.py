"""Driver membership: a driver's credentials, and the authority if it made the cluster.

``clusters/NAME/`` in the user's configuration directory holds the driver's credentials. On the
machine that made the cluster, it also holds ``authority.key`` and the register of members.
"""

from __future__ import annotations

import re
import shutil
import socket
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from jupyter_mntrain.model.api import TrustNews
from jupyter_mntrain.model.errors import SpecError, TrustError
from jupyter_mntrain.model.whereabouts import kept_folder, user_name
from jupyter_mntrain.trust.audit import FILE, Audit
from jupyter_mntrain.trust.authority import CERTIFICATE_LIFETIME, Authority
from jupyter_mntrain.trust.certificates import (
    Subject,
    due_for_renewal,
    key_pem,
    load_certificate,
    load_key,
    new_key,
    pem_of,
    request,
)
from jupyter_mntrain.trust.credentials import Credentials, damage_told, read_private, write_private
from jupyter_mntrain.trust.registrar import Clock, Register, RegisteredMember, Registrar
from jupyter_mntrain.trust.shared_file import SharedFile

_MOVED = ".empty-"
"""In the name of a directory that was moved out of the way."""

AUTHORITY_KEY, REGISTER = "authority.key", "register.json"


def clusters_directory() -> Path:
    return kept_folder("config") / "clusters"


def known_clusters() -> tuple[str, ...]:
    """Return the names of the clusters for which this user has keys."""
    found = sorted(clusters_directory().glob("*"))
    return tuple(one.name for one in found if Credentials.exist(one) and _MOVED not in one.name)


def own_driver_name() -> str:
    """Return ``user-host``, with invalid characters replaced."""
    text = re.sub(r"[^A-Za-z0-9._-]", "-", f"{user_name()}-{socket.gethostname()}")
    return text[:63].strip("-._") or "driver"


@dataclass(eq=False)
class DriverMembership:
    """One driver's membership in a cluster: its credentials, and the registrar if it made the
    cluster.

    Args:
        directory: that holds the credentials.
        lifetime: of certificates that it signs.

    Raises:
        TrustError: a file is damaged, or readable by other users.
    """

    directory: Path
    clock: Clock = time.time
    lifetime: timedelta = CERTIFICATE_LIFETIME

    def __post_init__(self) -> None:
        self.credentials = Credentials(self.directory)
        self.registrar = self._registrar()
        """``None`` if another driver made the cluster."""

    @classmethod
    def find(cls, cluster: str, *, clock: Clock = time.time) -> DriverMembership | None:
        """Return this user's membership in a cluster, by its local name, or ``None``.

        Raises:
            TrustError: a file is damaged, or readable by other users.
        """
        directory = clusters_directory() / cluster
        return cls(directory, clock=clock) if Credentials.exist(directory) else None

    @classmethod
    def make(cls, cluster: str, *, clock: Clock = time.time) -> DriverMembership:
        """Make a new cluster with its own authority; this driver is its first member."""
        directory = clusters_directory() / cluster
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = _register_file(directory)
        with file.locked():
            if not Credentials.exist(directory):  # else another process was faster
                _make(directory, file, cluster, clock())
        return cls(directory, clock=clock)

    def authorized(self) -> Registrar:
        """Return the registrar, or raise an error if there is none.

        Raises:
            TrustError: another driver made the cluster.
        """
        if self.registrar is None:
            raise TrustError(
                f"this driver did not make cluster {self.credentials.cluster_name!r}, and only "
                "the one that did can invite and revoke",
                fix="do it on the machine where the cluster was made, or move its authority here "
                "with mntrain driver backup and restore",
            )
        return self.registrar

    def news_for(self, node_id: str) -> TrustNews:
        """Return revocations, and renewed certificates of a node and of all drivers."""
        wanted = [
            member.certificate
            for member in (self.registrar.members() if self.registrar else ())
            if not member.is_revoked and (member.role != "node" or member.name == node_id)
        ]
        return TrustNews(revocations=self.credentials.revocations_pem(), certificates=tuple(wanted))

    def take_news(self, news: TrustNews) -> None:
        """Apply news from a node: revocations, and this driver's renewed certificate.

        Raises:
            TrustError: this cluster's authority did not sign it.
        """
        self.credentials.take_revocations(news.revocations)
        for certificate in news.certificates:
            found = load_certificate(certificate)
            if found.public_key() == self.credentials.key.public_key():
                self.credentials.take_certificate(certificate)

    @property
    def is_read_only(self) -> bool:
        """Whether this driver may only watch."""
        return self.credentials.subject.role == "viewer"

    @property
    def is_due(self) -> bool:
        """Whether this driver's certificate is due for renewal."""
        now = datetime.fromtimestamp(self.clock(), UTC)
        return due_for_renewal(self.credentials.certificate, now)

    def _registrar(self) -> Registrar | None:
        path = self.directory / AUTHORITY_KEY
        if not path.exists():
            return None
        text = read_private(path)
        with damage_told(path):
            authority = Authority(load_key(text.encode()), self.credentials.authority)
        file = _register_file(self.directory)
        audit = Audit(self.directory / FILE, self.clock)
        return Registrar(authority, self.credentials, file, audit, self.clock, self.lifetime)


def room_for(cluster: str) -> Path:
    """Return the directory for joining another driver's cluster under a local name.

    An own cluster of that name without other members is moved out of the way.

    Raises:
        SpecError: a cluster of that name exists and has members.
    """
    target = clusters_directory() / cluster
    if Credentials.exist(target):
        registrar = DriverMembership(target).registrar
        if registrar is None or len(registrar.members()) != 1:
            raise SpecError(
                f"a different cluster named {cluster!r} already exists here",
                fix=f"join under another name: mntrain --cluster {cluster}2 driver join",
            )
        shutil.move(target, target.with_name(f"{target.name}{_MOVED}{int(time.time())}"))
    return target


def _register_file(directory: Path) -> SharedFile[Register]:
    return SharedFile(directory / REGISTER, Register, what="the cluster's register")


def _make(directory: Path, file: SharedFile[Register], cluster: str, now_s: float) -> None:
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
