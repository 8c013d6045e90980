"""Proof of the token: a MAC over the certificate that was seen.

The connection is TLS with a self-signed certificate. Each side puts the hash of the certificate
*it* saw into a MAC keyed with the token's secret. A man in the middle must present a certificate of
its own, so the hashes differ, and it cannot forge the MAC.
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
    """Compute a proof: 32 bytes.

    Args:
        side: that proves, so that one side's proof cannot be reflected as the other's.
        certificate_hash: SHA-256 of the joining side's certificate, as seen here.
        nonces: the inviting side's, the joining side's; they bind it to one conversation.
        content: the message that it authenticates.
    """
    parts = (side.encode(), certificate_hash, *nonces, content)
    # Length-prefixed, so that different parts cannot yield the same message.
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
    """Check the other side's proof, in constant time."""
    own = prove(secret, side, certificate_hash=certificate_hash, nonces=nonces, content=content)
    return hmac.compare_digest(proof, own)
