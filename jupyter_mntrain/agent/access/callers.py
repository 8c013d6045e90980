"""Callers: authenticates them, disconnects revoked ones, relays revocations and renewals."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import msgspec
from cryptography import x509
from tornado.iostream import IOStream

from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.api import TrustNews
from jupyter_mntrain.model.errors import RefusedError, TrustError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.files import write_atomically
from jupyter_mntrain.model.records.hidden import cleaned
from jupyter_mntrain.model.records.metrics import encoder, read_journal_line
from jupyter_mntrain.model.text.secrets import masked
from jupyter_mntrain.trust.certificates import Subject, is_issued_by, load_certificate, subject_of
from jupyter_mntrain.trust.credentials import Credentials

log = logging.getLogger("mntrain.agent")


# Viewing: the gate that all answers to read-only drivers pass, which keeps secrets back.


T = TypeVar("T")

LONGEST_SECRET_BYTES = 8192
"""A private key of 4096 bits has 3,300."""


def for_viewer(content: T, values: Iterable[str] = (), *, hides_output: bool = False) -> T:
    """Return an answer without secrets: those given, those of its jobs, and text that looks like
    one. A job's spec loses its files and the values of its variables.

    Args:
        hides_output: it is about a session that does not show viewers what its cells print.
    """
    if isinstance(content, TrustNews):
        return content  # certificates, signed so that anybody may pass them on
    return cleaned(content, values, is_for_viewer=True, hides_output=hides_output)


def lines_for_viewer(block: bytes, values: Iterable[str], *, hides_output: bool = False) -> bytes:
    """Return whole lines of a journal without secrets; as :func:`for_viewer`."""
    values = tuple(values)
    lines = block.splitlines(keepends=True)
    return b"".join(_line_for_viewer(line, values, hides_output=hides_output) for line in lines)


def _line_for_viewer(line: bytes, values: tuple[str, ...], *, hides_output: bool) -> bytes:
    try:
        read = read_journal_line(line)
    except msgspec.MsgspecError:
        return b""
    if read is None:
        return b""  # a newer agent's: nobody here knows where it may hold a secret
    seen = for_viewer(read, values, hides_output=hides_output)
    return line if seen is read else encoder.encode(seen) + b"\n"


def around(offset: int, limit: int) -> tuple[int, int]:
    """Return the offset and length to read in order to mask a part of a log. A secret may begin
    before the part, and a reader of single bytes must not piece it together.
    """
    begin = max(0, offset - LONGEST_SECRET_BYTES)
    return begin, offset - begin + limit + LONGEST_SECRET_BYTES


def masked_log(content: bytes, values: Iterable[str]) -> bytes:
    """Mask the given secrets, and text that looks like one, in a part of a log. The length stays
    the same.
    """
    spelled = [value.encode().decode("latin-1") for value in values]
    return masked(content.decode("latin-1"), spelled).encode("latin-1")


Change = tuple[str, str]
"""What happened, ``revoke`` or ``renew``, and to which certificate or member."""

MOST_DRIVERS = tunables.count("limits.drivers")


class NotAllowedError(RefusedError):
    """The caller's certificate does not allow this request."""

    default = Kind.NOT_ALLOWED


class TrustKeeper:
    """Authenticates callers, and disconnects those that are revoked.

    Args:
        credentials: of this node.
        path: file with the renewed certificates that their drivers have not fetched yet.
    """

    def __init__(self, credentials: Credentials, path: Path) -> None:
        self.credentials = credentials
        self._path = path
        self._drivers: dict[str, str] = self._read()
        """Newest certificates by URI, PEM."""
        self._open: dict[int, set[IOStream]] = defaultdict(set)

    def caller(self, certificate: bytes | None) -> tuple[Subject, x509.Certificate]:
        """Return the caller and its certificate.

        Raises:
            NotAllowedError: it has none, or one that was revoked or has expired since it connected.
        """
        if certificate is None:
            raise NotAllowedError("no certificate was shown", fix="join the cluster")
        shown = x509.load_der_x509_certificate(certificate)
        if shown.serial_number in self.credentials.revoked:
            raise NotAllowedError(
                "the certificate was revoked",
                fix="ask the cluster's owner for an invitation, and join again",
            )
        if _left_s(shown) <= 0:
            raise NotAllowedError(
                f"the certificate expired on {shown.not_valid_after_utc:%Y-%m-%d}",
                fix="connect again with a renewed one; without one, join again",
            )
        return subject_of(shown), shown

    @contextmanager
    def connected(self, shown: x509.Certificate, connection: IOStream) -> Iterator[None]:
        """Register a long-lived answer, so that it ends when the reader's certificate does."""
        serial = shown.serial_number
        self._open[serial].add(connection)
        expiry = asyncio.get_running_loop().call_later(_left_s(shown), connection.close)
        try:
            yield
        finally:
            expiry.cancel()
            self._open[serial].discard(connection)
            if not self._open[serial]:
                del self._open[serial]

    def take(self, news: TrustNews) -> list[Change]:
        """Store newer revocations and certificates. Returns what has changed.

        Raises:
            TrustError: one is not signed by the cluster's authority.
        """
        before, number = self.credentials.revoked, self.credentials.revocations
        self.credentials.take_revocations(news.revocations)
        revoked = sorted(self.credentials.revoked - before)
        changes = [("revoke", f"certificate {serial:x}") for serial in revoked]
        if self.credentials.revocations > number and not changes:
            changes.append(("revoke", "no further certificate"))
        changes += [
            ("renew", subject_of(load_certificate(pem)).uri)
            for pem in news.certificates[:MOST_DRIVERS]
            if self._take_certificate(pem)
        ]
        for serial in self.credentials.revoked & self._open.keys():
            for connection in tuple(self._open[serial]):
                connection.close()
        return changes

    def news(self) -> TrustNews:
        """Return revocations and certificates that a driver may not have yet."""
        return TrustNews(
            revocations=self.credentials.revocations_pem(),
            certificates=tuple(self._drivers.values()),
        )

    def _take_certificate(self, pem: str) -> bool:
        offered = load_certificate(pem)
        if not is_issued_by(offered, self.credentials.authority):
            raise TrustError("the certificate is from another cluster")
        subject = subject_of(offered)
        if subject == self.credentials.subject:
            if self.credentials.take_certificate(pem):
                log.info("renewed certificate, valid until %s", offered.not_valid_after_utc.date())
                return True
            return False
        if subject.role == "node" or self._is_older(subject, offered):
            return False
        self._drivers[subject.uri] = pem
        write_atomically(self._path, msgspec.json.encode(self._drivers))
        return True

    def _is_older(self, subject: Subject, offered: x509.Certificate) -> bool:
        known = self._drivers.get(subject.uri)
        if known is None:
            return len(self._drivers) >= MOST_DRIVERS
        return offered.not_valid_after_utc <= load_certificate(known).not_valid_after_utc

    def _read(self) -> dict[str, str]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, str])
        except (OSError, msgspec.DecodeError):
            return {}  # the drivers that made them send them again


def _left_s(certificate: x509.Certificate) -> float:
    """Return the seconds until a certificate expires, by this machine's clock, like a handshake."""
    return (certificate.not_valid_after_utc - datetime.now(UTC)).total_seconds()
