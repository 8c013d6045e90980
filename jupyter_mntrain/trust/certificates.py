"""Certificates: EC P-256 keys, one small authority, two roles.

A certificate says who somebody is by a URI, ``mntrain:node:ID`` or ``mntrain:driver:NAME``, and by
a DNS name that the other side of a connection asks for. It names no address: those change.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, get_args

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from jupyter_mntrain.model import tunables
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import TrustError

Role = Literal["node", "driver"]

AUTHORITY_LIFETIME = timedelta(days=3650)
CERTIFICATE_LIFETIME = timedelta(days=365)
"""Long, because who is unwanted is revoked at once, and nobody looks after a lab in its holidays:
the driver that signs need be seen only twice in a year."""

CLOCK_ALLOWANCE = timedelta(days=1)
"""Machines without an ops team have clocks that are off, by whole hours where a system thinks that
they tell local time: what is signed is valid this long before it was made."""

RENEWED_AT = tunables.ratio("trust.renewed_at")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_URI = re.compile(r"mntrain:(node|driver):(.+)")


class Subject(Record, frozen=True):
    """Who a certificate is for: a node by its id, or a driver by the name it was given."""

    role: Role
    name: str

    @property
    def uri(self) -> str:
        return f"mntrain:{self.role}:{self.name}"

    @property
    def dns_name(self) -> str:
        """What the other side asks for when it connects; whatever address it dialled."""
        return f"{self.name}.{self.role}.mntrain"


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """As it is kept, in a file that only its owner may read."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def load_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    """Raises:
    TrustError: it is none of ours.
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
    """Raises:
    TrustError: it is no list of revocations.
    """
    try:
        return x509.load_pem_x509_crl(pem.encode())
    except ValueError as error:
        raise TrustError("the list of revocations cannot be read") from error


def load_certificate(pem: str) -> x509.Certificate:
    """Raises:
    TrustError: it is no certificate.
    """
    try:
        return x509.load_pem_x509_certificate(pem.encode())
    except ValueError as error:
        raise TrustError("the certificate cannot be read") from error


def fingerprint(certificate: x509.Certificate) -> bytes:
    """SHA-256 of the whole certificate: 32 bytes."""
    return certificate.fingerprint(hashes.SHA256())


def subject_of(certificate: x509.Certificate) -> Subject:
    """Who it is for.

    Raises:
        TrustError: it is no certificate of a node or a driver.
    """
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError) as error:
        raise TrustError("the certificate has no subject") from error
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    match = _URI.fullmatch(uris[0]) if len(uris) == 1 else None
    if match is None or not _NAME.fullmatch(match[2]):
        raise TrustError("the certificate is for neither a node nor a driver")
    role: Role = "node" if match[1] == "node" else "driver"
    return Subject(role=role, name=match[2])


def request(key: ec.EllipticCurvePrivateKey, subject: Subject) -> str:
    """A certificate asked for, signed by the key it is for: PEM."""
    made = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(_common_name(subject.name))
        .add_extension(_names(subject), critical=False)
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM).decode()


def self_signed(key: ec.EllipticCurvePrivateKey, subject: Subject, now: datetime) -> str:
    """What an agent that has not joined shows on its port: its key, vouched for by nobody. PEM."""
    name = _common_name(subject.name)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_ALLOWANCE)
        .not_valid_after(now + CERTIFICATE_LIFETIME)
        .add_extension(_names(subject), critical=False)
        .sign(key, hashes.SHA256())
    )
    return pem_of(made)


def due_for_renewal(certificate: x509.Certificate, now: datetime) -> bool:
    """Whether half of its life is over."""
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return now >= begin + (end - begin) * RENEWED_AT


@dataclass(frozen=True)
class Authority:
    """Makes a cluster one: signs who belongs to it, and says who does not any more."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def make(cls, cluster: str, now: datetime | None = None) -> Authority:
        """A new one. Two of the same name have nothing in common."""
        now = now or datetime.now(UTC)
        key = new_key()
        name = _common_name(cluster)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - CLOCK_ALLOWANCE)
            .not_valid_after(now + AUTHORITY_LIFETIME)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .sign(key, hashes.SHA256())
        )
        return cls(key, certificate)

    def issue(
        self,
        request_pem: str,
        subject: Subject,
        *,
        now: datetime | None = None,
        lifetime: timedelta = CERTIFICATE_LIFETIME,
    ) -> x509.Certificate:
        """Sign a request. What it asks to be called counts for nothing: ``subject`` does.

        Raises:
            TrustError: it is no request, or not signed by its own key.
        """
        return self._sign(requested_key(request_pem), subject, now or datetime.now(UTC), lifetime)

    def renew(
        self,
        certificate: x509.Certificate,
        *,
        now: datetime | None = None,
        lifetime: timedelta = CERTIFICATE_LIFETIME,
    ) -> x509.Certificate:
        """The same for the same key, from now on. Nobody needs to ask: only its owner can use it.

        Raises:
            TrustError: this authority has not signed it.
        """
        public = certificate.public_key()
        if not isinstance(public, ec.EllipticCurvePublicKey) or not is_issued_by(
            certificate, self.certificate
        ):
            raise TrustError("the certificate is not one of this cluster")
        subject = subject_of(certificate)
        return self._sign(public, subject, now or datetime.now(UTC), lifetime)

    def _sign(
        self,
        public: ec.EllipticCurvePublicKey,
        subject: Subject,
        now: datetime,
        lifetime: timedelta,
    ) -> x509.Certificate:
        if subject.role not in get_args(Role) or not is_member_name(subject.name):
            raise TrustError(f"{subject.name!r} cannot be the name of a {subject.role}")
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        own = x509.SubjectKeyIdentifier.from_public_key(self.key.public_key())
        return (
            x509.CertificateBuilder()
            .subject_name(_common_name(subject.name))
            .issuer_name(self.certificate.subject)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - CLOCK_ALLOWANCE)
            .not_valid_after(min(now + lifetime, self.certificate.not_valid_after_utc))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(_names(subject), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own), critical=False
            )
            .sign(self.key, hashes.SHA256())
        )

    def revocations(
        self,
        serials: Iterable[int],
        number: int,
        now: datetime | None = None,
        *,
        after: x509.CertificateRevocationList | None = None,
    ) -> x509.CertificateRevocationList:
        """Everybody who does not belong any more. A list with a higher number replaces it.

        Args:
            after: the list that this one replaces. OpenSSL goes by times of whole seconds.
        """
        now = now or datetime.now(UTC)
        since = now - CLOCK_ALLOWANCE
        if after is not None:
            since = max(since, after.last_update_utc + timedelta(seconds=1))
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self.certificate.subject)
            .last_update(since)
            .next_update(now + AUTHORITY_LIFETIME)
            .add_extension(x509.CRLNumber(number), critical=False)
        )
        for serial in serials:
            entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now)
            builder = builder.add_revoked_certificate(entry.build())
        return builder.sign(self.key, hashes.SHA256())


def requested_key(request_pem: str) -> ec.EllipticCurvePublicKey:
    """The key that a request is for.

    Raises:
        TrustError: it is no request, or not signed by its own key.
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
    """Whether a node's id or a driver's name can be this: it stands in a DNS name."""
    return _NAME.fullmatch(name) is not None


def is_issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Whether ``authority`` signed it; says nothing of its time or revocation."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def revoked_serials(
    crl: x509.CertificateRevocationList, authority: x509.Certificate
) -> tuple[int, frozenset[int]]:
    """(number, serials) of a list.

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


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _names(subject: Subject) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName(
        [x509.DNSName(subject.dns_name), x509.UniformResourceIdentifier(subject.uri)]
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
