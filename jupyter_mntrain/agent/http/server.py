"""HTTPS server of the agent: limits what strangers, and each member, can hold open."""

from __future__ import annotations

import resource
import ssl

from cryptography import x509
from tornado.iostream import IOStream
from tornado.web import Application

from jupyter_mntrain.agent.access.limits import (
    BODY_WITHIN_S,
    FILES,
    HANDSHAKE_S,
    HEADERS_WITHIN_S,
    MAX_BODY_BYTES,
    MAX_HEADER_BYTES,
    MOST_CONNECTIONS,
    MOST_CONNECTIONS_EACH,
    MOST_HANDSHAKES,
)
from jupyter_mntrain.http.bounded_server import BoundedServer, Bounds
from jupyter_mntrain.model.errors import TrustError
from jupyter_mntrain.trust.certificates import subject_of


def agent_server(application: Application, context: ssl.SSLContext) -> BoundedServer:
    """Make the server. The TLS context decides who may connect."""
    files = open_files_limit()
    return BoundedServer(
        application,
        ssl_options=context,
        max_body_size=MAX_BODY_BYTES,
        max_header_size=MAX_HEADER_BYTES,
        idle_connection_timeout=HEADERS_WITHIN_S,
        body_timeout=BODY_WITHIN_S,
        bounds=Bounds(
            handshakes=MOST_HANDSHAKES,
            handshake_s=HANDSHAKE_S,
            connections=min(MOST_CONNECTIONS, files // 2),
            connections_each=min(MOST_CONNECTIONS_EACH, files // 2),
        ),
        member_of=_member_of,
    )


def open_files_limit() -> int:
    """Raise the limit of this process's open files, as far as needed and allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if soft == unlimited or soft >= FILES:
        return FILES
    wanted = FILES if hard == unlimited else min(FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def _member_of(stream: IOStream, host: str) -> str:
    """Return the member whose certificate was shown. All drivers of a host share one address."""
    shown = stream.socket.getpeercert(binary_form=True)  # type: ignore[attr-defined]
    try:
        return subject_of(x509.load_der_x509_certificate(shown)).uri
    except (TrustError, ValueError, TypeError):
        return host  # requests of such a connection are refused
