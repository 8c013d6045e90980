"""Backup of an authority: the files that only the driver that made the cluster has, encrypted.

The key comes from the passphrase by scrypt (RFC 7914); AES-256-GCM encrypts, and notices every
change, also of what stands before the ciphertext.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import MntrainError, SpecError, TrustError
from jupyter_mntrain.model.files import fsync_directory, private_directory, write_atomically
from jupyter_mntrain.model.ids import is_cluster_name
from jupyter_mntrain.trust.credentials import OWN, TRUSTED, read_private
from jupyter_mntrain.trust.driver_membership import (
    AUTHORITY_KEY,
    REGISTER,
    DriverMembership,
    clusters_directory,
)

FILES = (AUTHORITY_KEY, REGISTER, TRUSTED, OWN)
SHORTEST_PASSPHRASE = 12
"""Characters: whoever has the file can try as many as their machines can."""

VERSION: Literal[1] = 1
COST = 1 << 17
"""128 MiB and about half a second for each try (OWASP's recommendation)."""
LARGEST_BYTES = 64 << 20

Power = Annotated[int, msgspec.Meta(ge=1 << 14, le=1 << 20)]
"""No file can make its reader use more than 1 GiB."""


class BackupFile(Record, frozen=True, forbid_unknown_fields=True):
    """Contents of a backup, as JSON. All but ``sealed`` is authenticated and not secret."""

    mntrain_authority_backup: Literal[1]
    cluster: str
    made_s: float
    salt: bytes
    nonce: bytes
    cost: Power
    sealed: bytes = b""


class Restored(Record, frozen=True):
    """What a restore put back.

    Args:
        moved_to: where the authority that was here before lies now.
    """

    cluster: str
    made_s: float
    members: int
    moved_to: str | None = None


@dataclass(frozen=True)
class AuthorityBackup:
    """An encrypted backup file of a cluster's authority.

    Args:
        path: of the file.
    """

    path: Path

    def refuse_existing(self) -> None:
        """Raise an error if the file already exists.

        Raises:
            SpecError: there is one.
        """
        if self.path.exists():
            raise SpecError(f"{self.path} exists already", fix="choose another name, or delete it")

    def refuse_restore(self, cluster: str | None, *, replaces: bool) -> None:
        """Raise the errors of :meth:`restore` that need no passphrase.

        Raises:
            SpecError: as for :meth:`restore`.
        """
        self._target(self._read(), cluster, replaces=replaces)

    def _target(self, head: BackupFile, cluster: str | None, *, replaces: bool) -> Path:
        name = cluster or head.cluster
        if not is_cluster_name(name):
            raise self._not_a_backup("it does not name its cluster")
        target = clusters_directory() / name
        if target.exists() and not replaces:
            raise SpecError(
                f"a cluster named {name!r} exists on this machine already, in {target}",
                fix="to replace it, add --replace: it is moved aside, not deleted; to keep both, "
                f"restore under another name: mntrain --cluster {name}2 driver restore",
            )
        return target

    def write(self, membership: DriverMembership, cluster: str, passphrase: str) -> None:
        """Back up the authority that this driver holds.

        Raises:
            SpecError: the file exists already or cannot be written, or the passphrase is short.
            TrustError: another driver holds the authority.
        """
        registrar = membership.authorized()
        if len(passphrase) < SHORTEST_PASSPHRASE:
            raise SpecError(
                f"the passphrase has fewer than {SHORTEST_PASSPHRASE} characters",
                fix="use several words; whoever has the file can try many passphrases",
            )
        self.refuse_existing()
        with registrar.file.locked():
            files = {name: read_private(membership.directory / name) for name in FILES}
        head = BackupFile(
            mntrain_authority_backup=VERSION,
            cluster=cluster,
            made_s=time.time(),
            salt=os.urandom(16),
            nonce=os.urandom(12),
            cost=COST,
        )
        sealed = _cipher(passphrase, head).encrypt(
            head.nonce, msgspec.json.encode(files), msgspec.json.encode(head)
        )
        content = msgspec.json.encode(msgspec.structs.replace(head, sealed=sealed))
        try:
            write_atomically(self.path, msgspec.json.format(content))
        except OSError as error:
            raise SpecError(
                f"{self.path} cannot be written: {error.strerror}", fix="choose another place"
            ) from error
        registrar.note_copy("backup", str(self.path))

    def restore(
        self, passphrase: str, *, cluster: str | None = None, replaces: bool = False
    ) -> Restored:
        """Restore the authority on this machine. An error leaves everything as it was.

        Args:
            cluster: its local name; default: as where it was backed up.
            replaces: move what is here under that name out of the way.

        Raises:
            SpecError: the file cannot be read, is damaged, or is for another program; or a cluster
                of that name is here already.
            TrustError: the passphrase is wrong, or the file was changed.
        """
        head = self._read()
        target = self._target(head, cluster, replaces=replaces)
        name = target.name
        files = _opened(passphrase, head, self.path)
        private_directory(target.parent)
        fresh = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=target.parent))
        moved = None
        try:
            members = self._lay_out(files, fresh)
            if target.exists():
                moved = target.with_name(f"{name}.replaced-{int(time.time())}")
                target.rename(moved)
            fresh.rename(target)
            fsync_directory(target.parent)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            if moved is not None and not target.exists():
                moved.rename(target)
            raise
        DriverMembership(target).authorized().note_copy("restore", str(self.path))
        return Restored(
            cluster=name,
            made_s=head.made_s,
            members=members,
            moved_to=str(moved) if moved else None,
        )

    def _read(self) -> BackupFile:
        try:
            if self.path.stat().st_size > LARGEST_BYTES:
                raise self._not_a_backup("it is too large")
            return msgspec.json.decode(self.path.read_bytes(), type=BackupFile)
        except OSError as error:
            raise SpecError(
                f"{self.path} cannot be read: {error.strerror}", fix="check the name"
            ) from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._not_a_backup(str(error)) from error

    def _not_a_backup(self, why: str) -> SpecError:
        return SpecError(
            f"{self.path} is not a complete backup of an authority: {why}",
            fix="copy the file again, and check that this version of mntrain is not older than "
            "the one that wrote it",
        )

    def _lay_out(self, files: dict[str, str], directory: Path) -> int:
        """Write the files, and check that a driver can use them. Returns the number of members."""
        for name in FILES:
            write_atomically(directory / name, files.get(name, "").encode())
        try:
            registrar = DriverMembership(directory).authorized()
        except MntrainError as error:
            raise self._not_a_backup(error.cause) from error
        authority = registrar.authority
        if authority.key.public_key() != authority.certificate.public_key():
            raise self._not_a_backup("its key is not the authority's")
        return sum(not member.is_revoked for member in registrar.members())


def _cipher(passphrase: str, head: BackupFile) -> AESGCM:
    kdf = Scrypt(salt=head.salt, length=32, n=head.cost, r=8, p=1)
    return AESGCM(kdf.derive(passphrase.encode()))


def _opened(passphrase: str, head: BackupFile, path: Path) -> dict[str, str]:
    bare = msgspec.structs.replace(head, sealed=b"")
    try:
        content = _cipher(passphrase, head).decrypt(
            head.nonce, head.sealed, msgspec.json.encode(bare)
        )
        return msgspec.json.decode(content, type=dict[str, str])
    except (InvalidTag, ValueError, msgspec.DecodeError) as error:
        raise TrustError(
            f"the passphrase is wrong, or {path} was changed",
            fix="type the passphrase again, or copy the file again",
        ) from error
