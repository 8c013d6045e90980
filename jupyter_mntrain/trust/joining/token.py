"""Invitation token: one line with a secret, the cluster and an expiry."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import struct

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import TrustError
from jupyter_mntrain.trust.certificates import Role

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
    """Content of an invitation.

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
