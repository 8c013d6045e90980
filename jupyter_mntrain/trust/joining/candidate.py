"""Candidate: a node or driver that joins with a token; makes its key and checks its admission."""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime
from pathlib import Path

from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.errors import TrustError
from jupyter_mntrain.trust.authority import self_signed
from jupyter_mntrain.trust.certificates import (
    Subject,
    fingerprint,
    load_certificate,
    new_key,
    request,
)
from jupyter_mntrain.trust.credentials import Credentials
from jupyter_mntrain.trust.joining.messages import (
    Admission,
    Application,
    Greeting,
    Sealed,
    check_admission,
    seal,
    unseal,
)
from jupyter_mntrain.trust.joining.proof import NONCE_BYTES, Conversation, new_nonce
from jupyter_mntrain.trust.joining.token import Token

MOST_GREETINGS = tunables.count("trust.greetings")


class Candidate:
    """A node or driver that joins with a token.

    Args:
        name: for people.
    """

    def __init__(self, token: Token, subject: Subject, name: str) -> None:
        self.token = token
        self.subject = subject
        self.name = name
        self.key = new_key()
        self.certificate = self_signed(self.key, subject, datetime.now(UTC))
        self._hash = fingerprint(load_certificate(self.certificate))
        self._application = Application(
            nonce=new_nonce(), subject=subject, name=name, request=request(self.key, subject)
        )
        self._conversations: deque[Conversation] = deque(maxlen=MOST_GREETINGS)

    def apply(self, greeting: Greeting) -> Sealed:
        """Answer a driver's greeting with a sealed application.

        Raises:
            TrustError: the greeting is malformed.
        """
        if len(greeting.nonce) != NONCE_BYTES:
            raise TrustError("malformed greeting")
        seen = Conversation(self._hash, greeting.nonce, self._application.nonce)
        self._conversations.append(seen)
        return seal(self._application, self.token, seen)

    def admitted(self, sealed: Sealed) -> Admission:
        """Unseal and check an admission.

        Raises:
            TrustError: it is not from a driver of the token's cluster, or that driver refuses.
        """
        problem = TrustError("unexpected admission: no greeting was received")
        for seen in self._conversations:
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
