"""Joining messages: the two exchanges in which a node or driver joins a cluster, for both sides.
Pure.

=====================  ==================================================================
inviting driver        joining side (listens, with a self-signed certificate)
=====================  ==================================================================
Greeting: nonce     →
                    ←  sealed Application: nonce, name, certificate request
sealed Admission:
credentials, or why
it is refused       →  stores them, and from then on requires certificates
=====================  ==================================================================

Each seal is a proof over the message, both nonces, and the hash of the certificate that the sender
saw: see :mod:`jupyter_mntrain.trust.joining.token`.
"""

from __future__ import annotations

import hmac
from typing import TypeVar

import msgspec

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import TrustError
from jupyter_mntrain.trust.certificates import (
    Subject,
    fingerprint,
    is_issued_by,
    load_certificate,
    load_revocations,
    requested_key,
    revoked_serials,
    subject_of,
)
from jupyter_mntrain.trust.joining.token import Conversation, Side, Token, prove


class JoinRefusedError(TrustError):
    """The inviting driver refuses. It has proved its identity, so there is no use in waiting."""


class Greeting(Record, frozen=True):
    """First message, from a driver that knows the candidate's invitation."""

    nonce: bytes


class Application(Record, frozen=True):
    """Request to join a cluster.

    Args:
        subject: a node by its id, a driver by the requested name.
        name: for people.
        request: a certificate request, PEM.
        endorsement: of the request by the member's former key; empty if it has none.
    """

    nonce: bytes
    subject: Subject
    name: str
    request: str
    endorsement: bytes = b""


class Admission(Record, frozen=True):
    """Credentials of a new member, all PEM, or the reason why it is refused.

    Args:
        cluster: its name.
        time_s: Unix time by the driver's clock; ``None`` from older versions.
        refusal: one sentence; then the credentials are empty.
        fix: what to do about the refusal.
    """

    cluster: str
    certificate: str = ""
    authority: str = ""
    revocations: str = ""
    refusal: str | None = None
    fix: str | None = None
    time_s: float | None = None


class Sealed(Record, frozen=True):
    """A message's encoded text with its proof.

    The proof covers the text, because another version may decode fewer fields.
    """

    text: str
    proof: bytes


Message = TypeVar("Message", Application, Admission)


def seal(message: Application | Admission, token: Token, seen: Conversation) -> Sealed:
    """Seal a message with a proof."""
    text = msgspec.json.encode(message)
    proof = prove(token.secret, _side(type(message)), seen, text)
    return Sealed(text=text.decode(), proof=proof)


def unseal(sealed: Sealed, kind: type[Message], token: Token, seen: Conversation) -> Message:
    """Check the proof and decode the message.

    Raises:
        TrustError: the sender does not hold the token, the connection was intercepted, or the
            message is malformed.
    """
    own = prove(token.secret, _side(kind), seen, sealed.text.encode())
    if not hmac.compare_digest(sealed.proof, own):
        raise TrustError(
            "the proof of the invitation is wrong: another token, or an intercepted connection",
            fix="create a new invitation, and check that you trust this network",
        )
    return read(sealed, kind)


def check_admission(admission: Admission, token: Token, application: Application) -> None:
    """Check that an admission is from the token's cluster and answers the application.

    Raises:
        JoinRefusedError: the driver refuses, and why.
        TrustError: the check fails.
    """
    if admission.refusal is not None:
        raise JoinRefusedError(admission.refusal, fix=admission.fix)
    authority = load_certificate(admission.authority)
    if not token.is_of(fingerprint(authority)):
        raise TrustError("the authority is not the one that the token names")
    own = load_certificate(admission.certificate)
    key = requested_key(application.request)
    if not is_issued_by(own, authority) or own.public_key() != key:
        raise TrustError("the certificate is for another key")
    if subject_of(own) != application.subject:
        raise TrustError("the certificate is for another member")
    revoked_serials(load_revocations(admission.revocations), authority)


def read(sealed: Sealed, kind: type[Message]) -> Message:
    """Decode a message without checking its proof.

    Raises:
        TrustError: it is malformed.
    """
    try:
        return msgspec.json.decode(sealed.text, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise TrustError(f"a message during joining cannot be read: {error}") from error


def _side(kind: type[Application | Admission]) -> Side:
    return "joining" if kind is Application else "inviting"
