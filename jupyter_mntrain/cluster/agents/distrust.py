"""Failed TLS handshakes: reads the other side's certificate and says why it was not accepted.

Libraries only say "certificate verify failed", or that the connection broke off. Users need to know
whose certificate it is and what is wrong with it.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from datetime import UTC, datetime

from cryptography import x509
from cryptography.x509.oid import NameOID

from jupyter_mntrain.cluster.agents.address import host_of
from jupyter_mntrain.model.errors import NodeError, TrustError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import NodeId
from jupyter_mntrain.trust.certificates import is_issued_by, subject_of
from jupyter_mntrain.trust.credentials import Credentials

CONNECT_S = 2.0
"""Timeout of the second connection, which finds out why a node's certificate was refused."""
ALERT_S = 0.3
"""Timeout for the other side's TLS alert: it comes in milliseconds, or not at all."""

REJOIN = (
    "on that node: mntrain agent leave, then mntrain agent join, with a token from a new "
    "mntrain invite"
)
ALERTS: tuple[tuple[str, Kind], ...] = (
    ("CERTIFICATE_REVOKED", Kind.REVOKED),
    ("CERTIFICATE_EXPIRED", Kind.EXPIRED),
    ("UNKNOWN_CA", Kind.OTHER_AUTHORITY),
    ("DECRYPT_ERROR", Kind.OTHER_AUTHORITY),
    ("BAD_CERTIFICATE", Kind.CLOCK_OFF),
)
"""An agent's answers to our certificate, by the end of OpenSSL's name. OpenSSL calls a certificate
"bad" that is not valid yet."""


async def explain(
    address: str, credentials: Credentials, *, node_id: NodeId | None, node: str
) -> NodeError | None:
    """Connect once more, without verifying, and judge both certificates.

    Args:
        node_id: the node that should answer; ``None`` = any node.
        node: its name in errors.

    Returns:
        the error; ``None`` if both certificates are fine, or there is no answer.
    """
    try:
        shown, alert = await asyncio.to_thread(_ask, address, credentials)
    except OSError:
        return None
    now = datetime.now(UTC)
    judged = judge(shown, credentials, node_id=node_id, now=now) or judge_alert(
        alert, credentials, now=now
    )
    if judged is None:
        return None
    return distrusted(judged, node)


Judged = tuple[Kind, str, str]
"""The kind, the cause, the fix."""


REVOKED: Judged = (Kind.REVOKED, "its certificate was revoked", REJOIN)


def distrusted(judged: Judged, node: str) -> NodeError:
    """Return the error for a node that is not trusted."""
    kind, cause, fix = judged
    return NodeError(cause, kind=kind, fix=fix, node=node)


def ended_trust(shown: x509.Certificate, credentials: Credentials, now: datetime) -> Judged | None:
    """Return why a certificate is no longer accepted; ``None`` if it still is. Pure."""
    if shown.serial_number in credentials.revoked:
        return REVOKED
    until = shown.not_valid_after_utc
    if until < now:
        cause = f"its certificate expired on {until:%Y-%m-%d}; by this machine's clock it is "
        return Kind.EXPIRED, cause + _time(now), f"if this machine's clock is right, {REJOIN}"
    return None


def judge(
    shown: x509.Certificate, credentials: Credentials, *, node_id: NodeId | None, now: datetime
) -> Judged | None:
    """Judge an agent's certificate; ``None`` if it is fine. Pure."""
    if not is_issued_by(shown, credentials.authority):
        return _of_others(shown, credentials)
    if (ended := ended_trust(shown, credentials, now)) is not None:
        return ended
    since = shown.not_valid_before_utc
    if since > now:
        cause = f"its certificate is valid from {_time(since)}, and this machine's clock says "
        return Kind.CLOCK_OFF, f"{cause}{_time(now)}", "set this machine's clock"
    try:
        subject = subject_of(shown)
    except TrustError as error:
        return Kind.NOT_AN_AGENT, error.cause, "check the address"
    if subject.role != "node" or (node_id is not None and subject.name != node_id):
        other = f"{subject.role} {subject.name[:8]}"
        cause = f"{other} answers there instead"
        return Kind.WRONG_NODE, cause, "check that no two machines have the same address"
    return None


def judge_alert(alert: str, credentials: Credentials, *, now: datetime) -> Judged | None:
    """Judge an agent's alert about our certificate; ``None`` if there is none. Pure.

    Args:
        alert: OpenSSL's name for it; empty if there was none.
    """
    kind = next((kind for end, kind in ALERTS if alert.endswith(end)), None)
    if kind is None:
        return None
    own = credentials.certificate
    who = credentials.subject.name
    has_expired = own.not_valid_after_utc < now
    if kind == Kind.EXPIRED and not has_expired:
        kind = Kind.CLOCK_OFF
    match kind:
        case Kind.REVOKED:
            return (
                kind,
                f"this driver ({who}) was revoked",
                "ask the person who created the cluster for a new invitation",
            )
        case Kind.EXPIRED:
            cause = f"this driver's own certificate expired on {own.not_valid_after_utc:%Y-%m-%d}"
            return kind, cause, "join the cluster again: mntrain driver join"
        case Kind.OTHER_AUTHORITY:
            return kind, "it belongs to a cluster with another authority", REJOIN
        case _:
            cause = (
                f"its clock is off: our certificate, issued {_time(own.not_valid_before_utc)}, is "
                "not valid there"
            )
            return kind, cause, f"set its clock; here it is {_time(now)}"


def _of_others(shown: x509.Certificate, credentials: Credentials) -> Judged:
    issuer, own = _name(shown.issuer), _name(credentials.authority.subject)
    if shown.issuer == shown.subject:
        cause = "the agent there has not joined a cluster yet"
        return (
            Kind.NOT_JOINED,
            cause,
            "invite it: mntrain invite, and there: mntrain agent join",
        )
    if issuer == own:
        cause = f"it belongs to a different cluster that is also named {own!r}"
        return Kind.OTHER_AUTHORITY, cause, REJOIN
    return Kind.WRONG_CLUSTER, f"it belongs to cluster {issuer!r}, not {own!r}", REJOIN


def _ask(address: str, credentials: Credentials) -> tuple[x509.Certificate, str]:
    """Fetch the agent's certificate and its alert about ours. Blocks; use a thread."""
    host, port = host_of(address), int(address.rpartition(":")[2])
    # Not asyncio: an alert may end the connection before asyncio shows the certificate.
    with (
        socket.create_connection((host, port), CONNECT_S) as plain,
        credentials.blind_client.wrap_socket(plain) as connection,
    ):
        shown = connection.getpeercert(binary_form=True)
        assert shown is not None  # noqa: S101 - servers always show one
        connection.settimeout(ALERT_S)
        alert = ""
        # We sent no request, so the only answer can be an alert, which TLS 1.3 sends late.
        try:
            connection.recv(1)
        except ssl.SSLError as error:
            alert = error.reason or ""
        except OSError:
            pass
    return x509.load_der_x509_certificate(shown), alert


def _name(name: x509.Name) -> str:
    found = name.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if found else ""


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
