"""Credentials: a key, a certificate and the trusted authority, in a private directory.

``own.pem`` holds the member's key and certificate, ``trusted.pem`` the cluster's authority and its
revocation list. Each is replaced atomically, possibly by another process of the same user.
"""

from __future__ import annotations

import os
import ssl
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from jupyter_mntrain.model.errors import TrustError
from jupyter_mntrain.model.files import write_atomically
from jupyter_mntrain.trust.certificates import (
    Subject,
    fingerprint,
    is_issued_by,
    key_pem,
    load_certificate,
    load_key,
    load_revocations,
    pem_of,
    revoked_serials,
    subject_of,
)

OWN, TRUSTED = "own.pem", "trusted.pem"
_KEY_END = "-----END PRIVATE KEY-----\n"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class Credentials:
    """The credentials of one member of one cluster. TLS contexts stay valid when the files change.

    Raises:
        TrustError: a file is missing or damaged, or readable by other users.
    """

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    subject: Subject
    authority: x509.Certificate
    revocations: int
    """Number of the newest known revocation list."""
    revoked: frozenset[int]

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._read()
        self.server = _context(ssl.PROTOCOL_TLS_SERVER)
        self.client = _context(ssl.PROTOCOL_TLS_CLIENT)
        """Connects only to the expected member."""
        self.unnamed_client = _context(ssl.PROTOCOL_TLS_CLIENT)
        self.unnamed_client.check_hostname = False
        """Connects to any member, to find out which one it is."""
        self.blind_client = blind_context()
        """Connects to anything, to find out why the others fail."""
        self._load()

    @classmethod
    def write(
        cls,
        directory: Path,
        key: ec.EllipticCurvePrivateKey,
        *,
        certificate: str,
        authority: str,
        revocations: str,
    ) -> Credentials:
        """Store a new member's credentials, all PEM."""
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        # own.pem last: it marks a membership, so a crash in between leaves none.
        write_private(directory / TRUSTED, authority + revocations)
        write_private(directory / OWN, key_pem(key).decode() + certificate)
        return cls(directory)

    @staticmethod
    def exist(directory: Path) -> bool:
        return (directory / OWN).exists()

    @property
    def cluster_name(self) -> str:
        """Name that the cluster's first driver gave it."""
        return str(self.authority.subject.rfc4514_string().partition("=")[2])

    @property
    def authority_id(self) -> str:
        """Id of the authority in mDNS announcements: 16 hex digits of its fingerprint."""
        return authority_id(self.authority)

    def refresh(self) -> bool:
        """Reload files that another process has changed; return whether any were."""
        if self._stamps() == self._seen:
            return False
        self._read()
        self._load()
        return True

    def take_revocations(self, pem: str) -> bool:
        """Store a newer revocation list; return ``False`` if it is not newer.

        Raises:
            TrustError: this cluster's authority did not sign it.
        """
        number, serials = revoked_serials(load_revocations(pem), self.authority)
        if number <= self.revocations:
            return False
        write_private(self.directory / TRUSTED, pem_of(self.authority) + pem)
        self.revocations, self.revoked = number, serials
        self._load()
        return True

    def take_certificate(self, pem: str) -> bool:
        """Switch to a renewed certificate for the same key, if it is valid for longer.

        Raises:
            TrustError: it is for another key or subject, or from another authority.
        """
        offered = load_certificate(pem)
        is_ours = offered.public_key() == self.key.public_key()
        if not is_issued_by(offered, self.authority) or not is_ours:
            raise TrustError("the new certificate is for another key or from another cluster")
        if subject_of(offered) != self.subject:
            raise TrustError("the new certificate is for another member")
        if offered.not_valid_after_utc <= self.certificate.not_valid_after_utc:
            return False
        write_private(self.directory / OWN, key_pem(self.key).decode() + pem)
        self.certificate = offered
        self._load()
        return True

    def revocations_pem(self) -> str:
        return pem_of(load_revocations((self.directory / TRUSTED).read_text()))

    def _read(self) -> None:
        own, trusted = (self.directory / name for name in (OWN, TRUSTED))
        self._seen = self._stamps()
        text = read_private(own)
        with damage_told(own):
            self.key = load_key((text.partition(_KEY_END)[0] + _KEY_END).encode())
            self.certificate = load_certificate(text)
            self.subject = subject_of(self.certificate)
        text = read_private(trusted)
        with damage_told(trusted):
            self.authority = load_certificate(text)
            self.revocations, self.revoked = revoked_serials(load_revocations(text), self.authority)

    def _load(self) -> None:
        """Load the files into the contexts; open connections are not affected."""
        try:
            for context in (self.server, self.client, self.unnamed_client):
                # OpenSSL also keeps older revocation lists, and uses the newest.
                context.load_verify_locations(self.directory / TRUSTED)
            for context in (self.server, self.client, self.unnamed_client, self.blind_client):
                context.load_cert_chain(self.directory / OWN)
        except (ssl.SSLError, OSError) as error:
            raise TrustError(
                f"{self.directory / OWN} cannot be used for TLS: {error}",
                fix=_restored(self.directory / OWN),
            ) from error
        self._seen = self._stamps()

    def _stamps(self) -> tuple[int, ...]:
        try:
            return tuple((self.directory / name).stat().st_mtime_ns for name in (OWN, TRUSTED))
        except OSError:
            return ()


def authority_id(authority: x509.Certificate) -> str:
    return fingerprint(authority).hex()[:16]


@contextmanager
def damage_told(path: Path) -> Iterator[None]:
    """Add the file's name and a fix to errors about its content.

    Raises:
        TrustError: it is damaged.
    """
    try:
        yield
    except TrustError as error:
        raise TrustError(f"{path} is damaged: {error.cause}", fix=_restored(path)) from error


def _restored(path: Path) -> str:
    return f"restore it from a backup, or move {path.parent} away and join the cluster again"


def read_private(path: Path) -> str:
    """Read a private file.

    Raises:
        TrustError: other users may read it, or it cannot be read.
    """
    try:
        found = path.stat()
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise TrustError(f"{path} cannot be read: {error}", fix="join the cluster again") from error
    if found.st_mode & _OTHERS:
        raise TrustError(
            f"other users can read {path} (mode {stat.S_IMODE(found.st_mode):04o}), and anyone "
            "who has it can run programs on every node",
            fix=f"chmod 600 {path}, and if it may have been read, see docs/security.md",
        )
    if found.st_uid != os.geteuid():
        raise TrustError(
            f"{path} belongs to another user",
            fix="run this as that user, or as a user with another HOME",
        )
    return text


def write_private(path: Path, text: str) -> None:
    """Replace a private file atomically; other users can never read it."""
    write_atomically(path, text.encode())


def blind_context() -> ssl.SSLContext:
    """Make a context that accepts any certificate, for a client that checks it itself."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _context(protocol: ssl._SSLMethod) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF | ssl.VERIFY_X509_STRICT
    # A resumed session is not asked for a certificate, so a revoked member could resume one.
    if protocol is ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0
    return context
