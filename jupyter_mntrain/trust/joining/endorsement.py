"""Endorsement: a member's former key vouches for the key of its next certificate.

Ids of nodes and names of drivers are public. Who joins under one that is registered has to hold the
registered key: either the request is for that key itself (its answer was lost, and it asks again),
or that key has signed the request.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from jupyter_mntrain.trust.certificates import load_certificate, requested_key

_PURPOSE = b"mntrain next key 1"


def endorse(former: ec.EllipticCurvePrivateKey, request: str) -> bytes:
    """Sign a certificate request for another key. Only that key's owner can use the answer."""
    return former.sign(_PURPOSE + request.encode(), ec.ECDSA(hashes.SHA256()))


def holds_key(certificate: str, request: str, endorsement: bytes) -> bool:
    """Whether a request comes from the owner of a certificate. All PEM.

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
