"""Proof of the token: a MAC over the certificate that was seen.

The connection is TLS with a certificate that nobody vouches for yet. Each side puts the hash of
the certificate *it* saw into a MAC under the token's secret: somebody in between, who must show a
certificate of his own, makes the two hashes differ, and knows no secret to mend that.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Literal

NONCE_BYTES = 32

Side = Literal["joining", "inviting"]


def new_nonce() -> bytes:
    return secrets.token_bytes(NONCE_BYTES)


def prove(
    secret: bytes,
    side: Side,
    *,
    certificate_hash: bytes,
    nonces: tuple[bytes, bytes],
    content: bytes,
) -> bytes:
    """A proof of 32 bytes.

    Args:
        side: whose proof it is: one side's never passes for the other's.
        certificate_hash: SHA-256 of the certificate that the joining side shows, as seen here.
        nonces: the inviting side's, the joining side's: a proof is good for one conversation.
        content: what is said along with it, and cannot be changed on the way.
    """
    parts = (side.encode(), certificate_hash, *nonces, content)
    # Each with its length: no two different lists of parts make the same message.
    message = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    return hmac.new(secret, b"mntrain join 1" + message, hashlib.sha256).digest()


def is_proved(
    proof: bytes,
    secret: bytes,
    side: Side,
    *,
    certificate_hash: bytes,
    nonces: tuple[bytes, bytes],
    content: bytes,
) -> bool:
    """Whether the other side's proof is right, in constant time."""
    own = prove(secret, side, certificate_hash=certificate_hash, nonces=nonces, content=content)
    return hmac.compare_digest(proof, own)
