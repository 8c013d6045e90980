"""Member register: who was invited and who has joined, kept by the driver that made the cluster."""

from __future__ import annotations

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.trust.certificates import Role, Subject, load_certificate
from jupyter_mntrain.trust.joining.token import Token


class IssuedInvitation(Record, frozen=True):
    """An invitation that was given out.

    Args:
        uses: how many may join with it.
        taken: who was admitted: URIs of subjects. Joining once more, after a lost answer, takes no
            other.
        joined: who of them has said to have the certificate.
    """

    token: Token
    uses: int
    taken: tuple[str, ...] = ()
    joined: tuple[str, ...] = ()

    def admits(self, subject: Subject, now_s: float) -> bool:
        """Whether this subject may still join with it."""
        if subject.role != self.token.role or now_s >= self.token.expires_s:
            return False
        return subject.uri in self.taken or len(self.taken) < self.uses


class RegisteredMember(Record, frozen=True):
    """A node or a driver of the cluster.

    Args:
        name: of a node its id, of a driver its name.
        title: for people.
        certificate: the newest one, PEM.
        earlier: hexadecimal serial numbers of those before it, which may still be valid.
    """

    role: Role
    name: str
    title: str
    certificate: str
    joined_s: float
    revoked_s: float | None = None
    earlier: tuple[str, ...] = ()

    @property
    def subject(self) -> Subject:
        return Subject(role=self.role, name=self.name)

    @property
    def serials(self) -> tuple[str, ...]:
        """Of all certificates it was given."""
        return (*self.earlier, f"{load_certificate(self.certificate).serial_number:x}")

    @property
    def is_revoked(self) -> bool:
        return self.revoked_s is not None


class Register(Record, frozen=True):
    """All of it; one file.

    Args:
        revoked: hexadecimal serial numbers of certificates that are not believed any more.
        number: of the list of them; grows with it.
    """

    invites: tuple[IssuedInvitation, ...] = ()
    members: tuple[RegisteredMember, ...] = ()
    revoked: tuple[str, ...] = ()
    number: int = 1

    def member(self, subject: Subject) -> RegisteredMember | None:
        """Who goes by this name now; not those who were revoked."""
        return next((m for m in self.members if m.subject == subject and not m.is_revoked), None)
