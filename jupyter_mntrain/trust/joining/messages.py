"""The two exchanges by which somebody joins a cluster. Pure; both sides stand here.

=====================  ==================================================================
inviting driver        whoever joins (listens, with a certificate that nobody vouches for)
=====================  ==================================================================
Greeting: nonce     →
                    ←  sealed Application: nonce, name, request for a certificate
sealed Admission: all
a member needs, or
why not             →  keeps it, and from then on demands certificates
=====================  ==================================================================

Each seal is a proof over the message, both nonces, and the hash of the certificate that
was seen: see :mod:`jupyter_mntrain.trust.joining.proof`.
"""

from __future__ import annotations

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
from jupyter_mntrain.trust.joining.proof import Side, is_proved, prove
from jupyter_mntrain.trust.joining.token import Token


class JoinRefusedError(TrustError):
    """The driver that invited does not admit: it has proved who it is, so nobody else will."""


class Greeting(Record, frozen=True):
    """Somebody with an invitation that this agent waits for begins."""

    nonce: bytes


class Application(Record, frozen=True):
    """Who wants to join.

    Args:
        subject: a node by its id, a driver by the name it wants.
        name: for people.
        request: a certificate request, PEM.
    """

    nonce: bytes
    subject: Subject
    name: str
    request: str


class Admission(Record, frozen=True):
    """What a new member is given, all of it PEM; or why it is refused.

    Args:
        cluster: its name.
        refusal: one sentence; then the rest is empty.
        fix: what to do about it.
    """

    cluster: str
    certificate: str = ""
    authority: str = ""
    revocations: str = ""
    refusal: str | None = None
    fix: str | None = None


class Sealed(Record, frozen=True):
    """A message as it was written, and the proof of it.

    The text itself: another version of this package may know fewer of its fields.
    """

    text: str
    proof: bytes


Message = TypeVar("Message", Application, Admission)


def seal(
    message: Application | Admission,
    token: Token,
    *,
    certificate_hash: bytes,
    nonces: tuple[bytes, bytes],
) -> Sealed:
    """The message with its proof.

    Args:
        certificate_hash: of the joining side's certificate, as this side sees it.
        nonces: the inviting side's, the joining side's.
    """
    text = msgspec.json.encode(message)
    proof = prove(
        token.secret,
        _side(type(message)),
        certificate_hash=certificate_hash,
        nonces=nonces,
        content=text,
    )
    return Sealed(text=text.decode(), proof=proof)


def unseal(
    sealed: Sealed,
    kind: type[Message],
    token: Token,
    *,
    certificate_hash: bytes,
    nonces: tuple[bytes, bytes],
) -> Message:
    """The message, if its sender holds the token and nobody sits in between.

    Raises:
        TrustError: he does not, or somebody does, or it is not what it should be.
    """
    proved = is_proved(
        sealed.proof,
        token.secret,
        _side(kind),
        certificate_hash=certificate_hash,
        nonces=nonces,
        content=sealed.text.encode(),
    )
    if not proved:
        raise TrustError(
            "the proof of the invitation is wrong: another token, or an intercepted connection",
            fix="create a new invitation, and check that you trust this network",
        )
    return _read(sealed, kind)


def unseal_application(
    sealed: Sealed, token: Token, *, certificate_hash: bytes, nonce: bytes
) -> Application:
    """As :func:`unseal`, where the other side's nonce is inside.

    Raises:
        TrustError: as there.
    """
    nonces = (nonce, _read(sealed, Application).nonce)
    return unseal(sealed, Application, token, certificate_hash=certificate_hash, nonces=nonces)


def check_admission(admission: Admission, token: Token, application: Application) -> None:
    """That what was given is of the token's cluster, and for us.

    Raises:
        JoinRefusedError: nothing was, and why.
        TrustError: it is not.
    """
    if admission.refusal is not None:
        raise JoinRefusedError(admission.refusal, fix=admission.fix)
    authority = load_certificate(admission.authority)
    if not token.is_of(fingerprint(authority)):
        raise TrustError("the authority is not the one that the token names")
    own = load_certificate(admission.certificate)
    key = requested_key(application.request)
    if not is_issued_by(own, authority) or own.public_key() != key:
        raise TrustError("the certificate is not for the key that was asked for")
    if subject_of(own) != application.subject:
        raise TrustError("the certificate is for another member")
    revoked_serials(load_revocations(admission.revocations), authority)


def _read(sealed: Sealed, kind: type[Message]) -> Message:
    try:
        return msgspec.json.decode(sealed.text, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise TrustError(f"a message during joining cannot be read: {error}") from error


def _side(kind: type[Application | Admission]) -> Side:
    return "joining" if kind is Application else "inviting"
