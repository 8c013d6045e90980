"""Certificates: reads, writes and checks them. Keys are EC P-256.

A certificate identifies a member by a URI, ``mntrain:node:ID``, ``mntrain:driver:NAME`` or, for a
read-only driver, ``mntrain:viewer:NAME``, and by a DNS name that the other side of a connection
asks for. It holds no address: those change.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Literal

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import TrustError

Role = Literal["node", "driver", "viewer"]
"""A viewer is a read-only driver."""

RENEWED_AT = 0.5
"""Share of a certificate's life after which it is renewed."""

NAME_FIX = "use at most 63 letters of a to z, digits, '.', '_' and '-'; a letter or digit first"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_URI = re.compile(r"mntrain:(node|driver|viewer):(.+)")
_ROLES: dict[str, Role] = {"node": "node", "driver": "driver", "viewer": "viewer"}


class Subject(Record, frozen=True):
    """A member that a certificate identifies: a node by its id, a driver by its name."""

    role: Role
    name: str

    @property
    def uri(self) -> str:
        return f"mntrain:{self.role}:{self.name}"

    @property
    def dns_name(self) -> str:
        """TLS name that the other side expects when it connects, at any address."""
        return f"{self.name}.{self.role}.mntrain"


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a key as unencrypted PEM, for a private file."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def load_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    """Read a private key from PEM.

    Raises:
        TrustError: it is damaged or of another type.
    """
    try:
        key = serialization.load_pem_private_key(pem, None)
    except (ValueError, TypeError) as error:
        raise TrustError(f"the key cannot be read: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TrustError("the key has the wrong type", fix="join the cluster again")
    return key


def pem_of(certificate: x509.Certificate | x509.CertificateRevocationList) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def load_revocations(pem: str) -> x509.CertificateRevocationList:
    """Read a revocation list from PEM.

    Raises:
        TrustError: it is not a revocation list.
    """
    try:
        return x509.load_pem_x509_crl(pem.encode())
    except ValueError as error:
        raise TrustError("the list of revocations cannot be read") from error


def load_certificate(pem: str) -> x509.Certificate:
    """Read a certificate from PEM.

    Raises:
        TrustError: it is not a certificate.
    """
    try:
        return x509.load_pem_x509_certificate(pem.encode())
    except ValueError as error:
        raise TrustError("the certificate cannot be read") from error


def fingerprint(certificate: x509.Certificate) -> bytes:
    """Return the SHA-256 of the whole certificate: 32 bytes."""
    return certificate.fingerprint(hashes.SHA256())


def subject_of(certificate: x509.Certificate) -> Subject:
    """Return the member that a certificate identifies.

    Raises:
        TrustError: it is not the certificate of a node or a driver.
    """
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError) as error:
        raise TrustError("the certificate has no subject") from error
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    match = _URI.fullmatch(uris[0]) if len(uris) == 1 else None
    if match is None or not _NAME.fullmatch(match[2]):
        raise TrustError("the certificate is for neither a node nor a driver")
    return Subject(role=_ROLES[match[1]], name=match[2])


def request(key: ec.EllipticCurvePrivateKey, subject: Subject) -> str:
    """Make a certificate request (PEM), signed with the key that it is for.

    Raises:
        TrustError: the member's name cannot stand in a DNS name.
    """
    names = alternative_names(subject)
    made = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(common_name(subject.name))
        .add_extension(names, critical=False)
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM).decode()


def due_for_renewal(certificate: x509.Certificate, now: datetime) -> bool:
    """Return whether a certificate is past :data:`RENEWED_AT` of its lifetime."""
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return now >= begin + (end - begin) * RENEWED_AT


def requested_key(request_pem: str) -> ec.EllipticCurvePublicKey:
    """Return the public key in a certificate request.

    Raises:
        TrustError: it is not a request, or not signed by its own key.
    """
    try:
        asked = x509.load_pem_x509_csr(request_pem.encode())
        public = asked.public_key()
        is_own = asked.is_signature_valid
    except (ValueError, TypeError) as error:
        raise TrustError("the certificate request cannot be read") from error
    if not is_own or not isinstance(public, ec.EllipticCurvePublicKey):
        raise TrustError("the certificate request is not signed by its own key")
    return public


def is_member_name(name: str) -> bool:
    """Return whether this is a valid node id or driver name: it becomes part of a DNS name."""
    return _NAME.fullmatch(name) is not None


def is_issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Return whether ``authority`` signed a certificate, which may be expired or revoked."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def revoked_serials(
    crl: x509.CertificateRevocationList, authority: x509.Certificate
) -> tuple[int, frozenset[int]]:
    """Return a revocation list's number, and the serial numbers that it revokes.

    Raises:
        TrustError: the authority did not sign it, or it has no number.
    """
    public = authority.public_key()
    if not isinstance(public, ec.EllipticCurvePublicKey) or not crl.is_signature_valid(public):
        raise TrustError("the list of revocations is not signed by this cluster's authority")
    try:
        number = crl.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
    except x509.ExtensionNotFound as error:
        raise TrustError("the list of revocations has no number") from error
    return number, frozenset(entry.serial_number for entry in crl)


def common_name(name: str) -> x509.Name:
    """Make a certificate's name for people, cut to the length that X.509 allows."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def alternative_names(subject: Subject) -> x509.SubjectAlternativeName:
    """Return the subject alternative names that are checked when connecting.

    Raises:
        TrustError: the member's name cannot stand in a DNS name.
    """
    if not is_member_name(subject.name):
        raise TrustError(f"{subject.name!r} cannot be the name of a {subject.role}", fix=NAME_FIX)
    return x509.SubjectAlternativeName(
        [x509.DNSName(subject.dns_name), x509.UniformResourceIdentifier(subject.uri)]
    )
