"""Candidate: a node or driver that joins with a token. It makes a key and checks its admission."""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec

from jupyter_mntrain.model.errors import TrustError
from jupyter_mntrain.trust.authority import self_signed
from jupyter_mntrain.trust.certificates import (
    Subject,
    fingerprint,
    key_pem,
    load_certificate,
    load_key,
    new_key,
    request,
)
from jupyter_mntrain.trust.credentials import Credentials, read_private, write_private
from jupyter_mntrain.trust.joining.messages import (
    Admission,
    Application,
    Greeting,
    Sealed,
    check_admission,
    seal,
    unseal,
)
from jupyter_mntrain.trust.joining.token import NONCE_BYTES, Conversation, Token, endorse, new_nonce

PENDING_KEY = "joining.key"

MOST_GREETINGS = 32
"""Maximum number of conversations with one address at once: several processes of one driver may
admit a machine."""
MOST_ADDRESSES = 256
"""Maximum number of addresses with conversations. The one not heard for longest is forgotten."""


class Candidate:
    """A node or driver that joins with a token.

    Args:
        name: for people.
        room: private directory with the member's former credentials, if it has any. The new key
            is stored there, too, until it is certified: who asks again after a lost answer is
            known by it.

    Raises:
        TrustError: former credentials are damaged, or other users can read them.
    """

    def __init__(self, token: Token, subject: Subject, name: str, *, room: Path) -> None:
        self.token = token
        self.subject = subject
        self.name = name
        self._pending = room / PENDING_KEY
        self.key = _pending_key(self._pending)
        asked = request(self.key, subject)
        former = Credentials(room).key if Credentials.exist(room) else None
        self.certificate = self_signed(self.key, subject, datetime.now(UTC))
        self._hash = fingerprint(load_certificate(self.certificate))
        self._application = Application(
            nonce=new_nonce(),
            subject=subject,
            name=name,
            request=asked,
            endorsement=endorse(former, asked) if former else b"",
        )
        self._conversations: dict[str, deque[Conversation]] = {}
        """The newest of each address: strangers must not push out those of a driver."""

    def apply(self, greeting: Greeting, where: str = "") -> Sealed:
        """Answer a driver's greeting with a sealed application.

        Args:
            where: the address that it came from.

        Raises:
            TrustError: the greeting is malformed.
        """
        if len(greeting.nonce) != NONCE_BYTES:
            raise TrustError("malformed greeting")
        seen = Conversation(self._hash, greeting.nonce, self._application.nonce)
        own = self._conversations.pop(where, deque(maxlen=MOST_GREETINGS))
        own.append(seen)
        self._conversations[where] = own
        if len(self._conversations) > MOST_ADDRESSES:
            del self._conversations[next(iter(self._conversations))]
        return seal(self._application, self.token, seen)

    def admitted(self, sealed: Sealed, where: str = "") -> Admission:
        """Unseal and check an admission.

        Args:
            where: the address that it came from.

        Raises:
            TrustError: it is not from a driver of the token's cluster, or that driver refuses.
        """
        problem = TrustError("unexpected admission: no greeting was received")
        for seen in self._conversations.get(where, ()):
            try:
                admission = unseal(sealed, Admission, self.token, seen)
            except TrustError as error:
                problem = error
                continue
            check_admission(admission, self.token, self._application)
            return admission
        raise problem

    def keep(self, directory: Path, admission: Admission) -> None:
        """Store the credentials of the new member."""
        Credentials.write(
            directory,
            self.key,
            certificate=admission.certificate,
            authority=admission.authority,
            revocations=admission.revocations,
        )
        self._pending.unlink(missing_ok=True)


def _pending_key(path: Path) -> ec.EllipticCurvePrivateKey:
    if path.exists():
        return load_key(read_private(path).encode())
    key = new_key()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_private(path, key_pem(key).decode())
    return key
