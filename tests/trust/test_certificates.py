"""Certificates of a cluster's authority, and real TLS connections with them."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from jupyter_mntrain.model.errors import TrustError
from jupyter_mntrain.trust.authority import CERTIFICATE_LIFETIME, Authority, self_signed
from jupyter_mntrain.trust.certificates import (
    Subject,
    due_for_renewal,
    fingerprint,
    is_issued_by,
    key_pem,
    load_certificate,
    load_key,
    new_key,
    pem_of,
    request,
    revoked_serials,
    subject_of,
)
from tests.wording import wording

NODE = Subject(role="node", name="0123456789abcdef" * 2)
DRIVER = Subject(role="driver", name="ada-laptop")
NOW = datetime(2026, 11, 21, tzinfo=UTC)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.make("lab")


class Party:
    """Somebody with a key and a certificate, as files for the ssl module."""

    def __init__(
        self, path: Path, authority: Authority, subject: Subject, *, age: timedelta = timedelta()
    ) -> None:
        key = new_key()
        now = datetime.now(UTC) - age
        certificate = authority.issue(request(key, subject), subject, now=now)
        path.mkdir()
        (path / "own.pem").write_bytes(key_pem(key) + pem_of(certificate).encode())
        (path / "ca.pem").write_text(pem_of(authority.certificate))
        self.path = path

    def context(self, purpose: ssl.Purpose) -> ssl.SSLContext:
        context = ssl.create_default_context(purpose, cafile=str(self.path / "ca.pem"))
        context.load_cert_chain(self.path / "own.pem")
        context.verify_mode = ssl.CERT_REQUIRED
        return context


def shake_hands(server: Party, client: Party, name: str) -> Subject:
    """In memory; whom the server sees at the other end."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    here = server.context(ssl.Purpose.CLIENT_AUTH).wrap_bio(to_server, to_client, server_side=True)
    there = client.context(ssl.Purpose.SERVER_AUTH).wrap_bio(
        to_client, to_server, server_hostname=name
    )
    open_ends = [there, here]
    for _ in range(10):
        for end in tuple(open_ends):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            open_ends.remove(end)
        if not open_ends:
            break
    assert not open_ends
    shown = here.getpeercert(binary_form=True)
    assert shown is not None
    return subject_of(x509.load_der_x509_certificate(shown))


def test_both_sides_of_a_connection_are_known(authority: Authority, tmp_path: Path) -> None:
    node = Party(tmp_path / "node", authority, NODE)
    driver = Party(tmp_path / "driver", authority, DRIVER)
    assert shake_hands(node, driver, NODE.dns_name) == DRIVER


def test_who_is_of_another_cluster_of_the_same_name_is_refused(
    authority: Authority, tmp_path: Path
) -> None:
    node = Party(tmp_path / "node", authority, NODE)
    stranger = Party(tmp_path / "stranger", Authority.make("lab"), DRIVER)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(node, stranger, NODE.dns_name)


def test_a_node_that_answers_for_another_one_is_refused(
    authority: Authority, tmp_path: Path
) -> None:
    other = Subject(role="node", name="f" * 32)
    wrong = Party(tmp_path / "wrong", authority, other)
    driver = Party(tmp_path / "driver", authority, DRIVER)
    with pytest.raises(ssl.SSLCertVerificationError, match="not valid for"):
        shake_hands(wrong, driver, NODE.dns_name)


def test_what_has_expired_is_refused(authority: Authority, tmp_path: Path) -> None:
    old = Party(tmp_path / "old", authority, NODE, age=CERTIFICATE_LIFETIME + timedelta(days=1))
    driver = Party(tmp_path / "driver", authority, DRIVER)
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        shake_hands(old, driver, NODE.dns_name)


def test_a_request_is_not_believed_what_it_wants_to_be_called(authority: Authority) -> None:
    asked = request(new_key(), DRIVER)
    assert subject_of(authority.issue(asked, NODE)) == NODE


def test_what_is_no_request_or_not_its_own_keys_is_refused(authority: Authority) -> None:
    lines = request(new_key(), NODE).splitlines()
    lines[2] = lines[2][::-1]
    for text in ("", "nonsense", "\n".join(lines)):
        with pytest.raises(TrustError):
            authority.issue(text, NODE)
    for name in ("", "-x", "a/b", "a" * 64, "two words", "ä"):
        with pytest.raises(TrustError, match=wording("cannot be the name")):
            authority.issue(request(new_key(), NODE), Subject(role="driver", name=name))


def test_a_certificate_without_a_name_of_ours_is_for_nobody() -> None:
    authority = Authority.make("lab")
    with pytest.raises(TrustError, match=wording("has no subject")):
        subject_of(authority.certificate)
    shown = load_certificate(self_signed(new_key(), NODE, NOW))
    assert subject_of(shown) == NODE
    assert not is_issued_by(shown, authority.certificate)


def test_renewal_is_due_after_half_of_the_life(authority: Authority) -> None:
    made = authority.issue(request(new_key(), NODE), NODE, now=NOW)
    assert not due_for_renewal(made, NOW + CERTIFICATE_LIFETIME * 0.49)
    assert due_for_renewal(made, NOW + CERTIFICATE_LIFETIME * 0.51)
    assert is_issued_by(made, authority.certificate)


def test_a_list_of_revocations_counts_only_from_its_own_authority(authority: Authority) -> None:
    made = authority.issue(request(new_key(), NODE), NODE)
    crl = authority.revocations([made.serial_number], number=7)
    assert revoked_serials(crl, authority.certificate) == (7, frozenset({made.serial_number}))
    with pytest.raises(TrustError, match=wording("not signed by this cluster's authority")):
        revoked_serials(crl, Authority.make("lab").certificate)


def test_keys_and_certificates_survive_their_files(authority: Authority) -> None:
    again = load_key(key_pem(authority.key))
    assert again.public_key() == authority.key.public_key()
    text = pem_of(authority.certificate)
    assert fingerprint(load_certificate(text)) == fingerprint(authority.certificate)
    for broken in (b"", b"nonsense"):
        with pytest.raises(TrustError):
            load_key(broken)
    with pytest.raises(TrustError):
        load_certificate("nonsense")
