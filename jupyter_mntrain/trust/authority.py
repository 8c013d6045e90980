"""Authority: signs the certificates of a cluster's members, and the list of revoked ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.errors import TrustError
from jupyter_mntrain.trust.certificates import (
    Subject,
    alternative_names,
    common_name,
    is_issued_by,
    new_key,
    pem_of,
    requested_key,
    subject_of,
)

AUTHORITY_LIFETIME = timedelta(seconds=3650 * 86_400.0)
"""Life of a cluster's own certificate: 3650 days. After that the cluster must be created again."""
CERTIFICATE_LIFETIME = timedelta(seconds=tunables.seconds("trust.certificate_lifetime_s"))
CLOCK_ALLOWANCE = timedelta(seconds=86_400.0)
"""Certificates are valid from this long before they are signed: unset clocks are off by hours."""


@dataclass(frozen=True)
class Authority:
    """A cluster's key and certificate, required to admit members."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def make(cls, cluster: str, now: datetime | None = None) -> Authority:
        """Make a new authority. It differs from that of any other cluster with the same name."""
        now = now or datetime.now(UTC)
        key, name = new_key(), common_name(cluster)
        own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        certificate = (
            _unsigned(name, key.public_key(), now, now + AUTHORITY_LIFETIME)
            .issuer_name(name)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(own, critical=False)
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
        """Sign a request for ``subject``, whatever name the request itself gives.

        Raises:
            TrustError: it is not a request, or not signed by its own key.
        """
        return self._sign(requested_key(request_pem), subject, now, lifetime)

    def renew(
        self,
        certificate: x509.Certificate,
        *,
        now: datetime | None = None,
        lifetime: timedelta = CERTIFICATE_LIFETIME,
    ) -> x509.Certificate:
        """Issue a new certificate for the same key. This needs no request: only the key's owner can
        use it.

        Raises:
            TrustError: this authority has not signed it.
        """
        public = certificate.public_key()
        is_ours = is_issued_by(certificate, self.certificate)
        if not is_ours or not isinstance(public, ec.EllipticCurvePublicKey):
            raise TrustError("the certificate is not from this cluster")
        return self._sign(public, subject_of(certificate), now, lifetime)

    def revocations(
        self,
        serials: Iterable[int],
        number: int,
        now: datetime | None = None,
        *,
        after: x509.CertificateRevocationList | None = None,
    ) -> x509.CertificateRevocationList:
        """Sign a list of all revoked certificates. A higher number replaces a lower one.

        Args:
            after: the list that this one replaces. OpenSSL compares times in whole seconds.
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

    def _sign(
        self,
        public: ec.EllipticCurvePublicKey,
        subject: Subject,
        now: datetime | None,
        lifetime: timedelta,
    ) -> x509.Certificate:
        names = alternative_names(subject)
        now = now or datetime.now(UTC)
        until = min(now + lifetime, self.certificate.not_valid_after_utc)
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        own = x509.SubjectKeyIdentifier.from_public_key(self.key.public_key())
        issuer = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)
        return (
            _unsigned(common_name(subject.name), public, now, until)
            .issuer_name(self.certificate.subject)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(names, critical=False)
            .add_extension(issuer, critical=False)
            .sign(self.key, hashes.SHA256())
        )


def self_signed(key: ec.EllipticCurvePrivateKey, subject: Subject, now: datetime) -> str:
    """Make the certificate (PEM) that an agent shows before it joins; no authority signed it."""
    name = common_name(subject.name)
    return pem_of(
        _unsigned(name, key.public_key(), now, now + CERTIFICATE_LIFETIME)
        .issuer_name(name)
        .add_extension(alternative_names(subject), critical=False)
        .sign(key, hashes.SHA256())
    )


def _unsigned(
    name: x509.Name, public: ec.EllipticCurvePublicKey, now: datetime, until: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_ALLOWANCE)
        .not_valid_after(until)
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
