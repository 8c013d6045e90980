"""Proof of the token: a MAC over the certificate that was seen.

The connection is TLS with a self-signed certificate. Each side puts the hash of the certificate
*it* saw into a MAC keyed with the token's secret. A man in the middle must present a certificate of
its own, so the hashes differ, and it cannot forge the MAC.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Literal, NamedTuple

NONCE_BYTES = 32

Side = Literal["joining", "inviting"]


def new_nonce() -> bytes:
    return secrets.token_bytes(NONCE_BYTES)


class Conversation(NamedTuple):
    """What both sides of one joining must have seen alike.

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
