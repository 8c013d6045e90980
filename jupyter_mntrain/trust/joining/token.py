"""Invitation token: one line with a secret, the cluster and an expiry."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import struct
from typing import Literal, NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import TrustError
from jupyter_mntrain.trust.certificates import Role, load_certificate, requested_key

PREFIX = "mntrain-"
SECRET_BYTES = 16
AUTHORITY_BYTES = 16
"""Bytes of the authority's fingerprint: enough to rule out a second certificate with them."""

_VERSION = 1
_ROLES: tuple[Role, ...] = ("node", "driver", "viewer")
_BODY = struct.Struct(f">BBQ{SECRET_BYTES}s{AUTHORITY_BYTES}s")
"""Version, role, expiry, secret, authority."""
_CHECK_BYTES = 4
_CONTENT_BYTES = _BODY.size + _CHECK_BYTES
_CODED_CHARACTERS = -(-_CONTENT_BYTES * 8 // 5)
"""Base32 carries five bits in each character."""
_FIX = "copy the whole line, or ask for a new one: mntrain invite, or mntrain driver invite"


class Token(Record, frozen=True):
    """Contents of an invitation token.

    Args:
        role: of the member that joins with it.
        secret: shared by the inviting driver and the holder of the token.
        authority: first bytes of the fingerprint of the cluster's authority.
        expires_s: Unix time, whole seconds.
    """

    role: Role
    secret: bytes
    authority: bytes
    expires_s: int

    @property
    def id(self) -> str:
        """Public id of the invitation, which does not reveal its secret: 16 hexadecimal digits."""
        return hashlib.sha256(b"mntrain token id" + self.secret).hexdigest()[:16]

    def is_of(self, authority_fingerprint: bytes) -> bool:
        return hmac.compare_digest(self.authority, authority_fingerprint[:AUTHORITY_BYTES])


def new_token(role: Role, authority_fingerprint: bytes, expires_s: float) -> Token:
    return Token(
        role=role,
        secret=secrets.token_bytes(SECRET_BYTES),
        authority=authority_fingerprint[:AUTHORITY_BYTES],
        expires_s=int(expires_s),
    )


def write_token(token: Token) -> str:
    """Encode a token as one word of lower-case letters and digits, with a checksum."""
    role = _ROLES.index(token.role)
    body = _BODY.pack(_VERSION, role, token.expires_s, token.secret, token.authority)
    return PREFIX + base64.b32encode(body + _check(body)).decode().rstrip("=").lower()


def read_token(text: str) -> Token:
    """Decode a token; blanks and line breaks from copying are ignored.

    Raises:
        TrustError: it is not a token, or is incomplete or mistyped.
    """
    word = "".join(text.split()).lower()
    if not word.startswith(PREFIX):
        raise TrustError("not a token: tokens begin with mntrain-", fix=_FIX)
    coded = word.removeprefix(PREFIX).upper()
    if len(coded) < _CODED_CHARACTERS:
        raise TrustError("the token is cut off at its end", fix=_FIX)
    try:
        content = base64.b32decode(coded + "=" * (-len(coded) % 8))
    except ValueError:
        raise TrustError("the token has invalid characters", fix=_FIX) from None
    body, check = content[:-_CHECK_BYTES], content[-_CHECK_BYTES:]
    if len(body) != _BODY.size or not hmac.compare_digest(check, _check(body)):
        raise TrustError("the token is incomplete or mistyped", fix=_FIX)
    version, role, expires_s, secret, authority = _BODY.unpack(body)
    if version != _VERSION or role >= len(_ROLES):
        raise TrustError(
            "the token was made by another version", fix="install the same version on both machines"
        )
    return Token(role=_ROLES[role], secret=secret, authority=authority, expires_s=expires_s)


def _check(body: bytes) -> bytes:
    return hashlib.sha256(b"mntrain token" + body).digest()[:_CHECK_BYTES]


# Proof of the token: a MAC over the certificate that was seen.
#
# The connection is TLS with a self-signed certificate. Each side puts the hash of the certificate
# *it* saw into a MAC keyed with the token's secret. A man in the middle must present a certificate
# of its own, so the hashes differ, and it cannot forge the MAC.


NONCE_BYTES = 32

Side = Literal["joining", "inviting"]


def new_nonce() -> bytes:
    return secrets.token_bytes(NONCE_BYTES)


class Conversation(NamedTuple):
    """Values that both sides of a joining handshake must agree on.

    Args:
        certificate_hash: SHA-256 of the joining side's certificate, as seen here.
        greeted: nonce of the inviting side.
        applied: nonce of the joining side.
    """

    certificate_hash: bytes
    greeted: bytes
    applied: bytes


def prove(secret: bytes, side: Side, seen: Conversation, content: bytes) -> bytes:
    """Compute a proof: 32 bytes.

    Args:
        side: that proves, so that one side's proof cannot be reflected as the other's.
        content: the message that it authenticates.
    """
    parts = (side.encode(), *seen, content)
    # Length-prefixed, so that different parts cannot yield the same message.
    message = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    return hmac.new(secret, b"mntrain join 1" + message, hashlib.sha256).digest()


# Endorsement: a member's former key vouches for the key of its next certificate.
#
# Ids of nodes and names of drivers are public. Who joins under one that is registered has to hold
# the registered key: either the request is for that key itself (its answer was lost, and it asks
# again), or that key has signed the request.


_PURPOSE = b"mntrain next key 1"


def endorse(former: ec.EllipticCurvePrivateKey, request: str) -> bytes:
    """Sign a certificate request for another key. Only that key's owner can use the answer."""
    return former.sign(_PURPOSE + request.encode(), ec.ECDSA(hashes.SHA256()))


def holds_key(certificate: str, request: str, endorsement: bytes) -> bool:
    """Return whether a request was made by the owner of a certificate. All PEM.

    Raises:
        TrustError: it is not a request, or not signed by its own key.
    """
    registered = load_certificate(certificate).public_key()
    if requested_key(request) == registered:
        return True
    if not isinstance(registered, ec.EllipticCurvePublicKey):
        return False
    try:
        registered.verify(endorsement, _PURPOSE + request.encode(), ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True
