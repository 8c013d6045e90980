"""HTTP routes of the agent, one file per family. The table of routes is in ``model/api.py``."""

from __future__ import annotations

import resource
import ssl
from typing import Any

from cryptography import x509
from tornado.httputil import HTTPServerRequest
from tornado.iostream import IOStream
from tornado.routing import URLSpec
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
from jupyter_mntrain.agent.gang.watch import WatchTasks
from jupyter_mntrain.agent.http import file_routes, job_routes, node_routes
from jupyter_mntrain.agent.http.base import AgentHandler, NotFound, Roles, TooLarge, body_length
from jupyter_mntrain.agent.node import LocalNode
from jupyter_mntrain.http.bounded_server import BoundedServer, Bounds
from jupyter_mntrain.launch.project.tree import SHA256
from jupyter_mntrain.model.api import Route
from jupyter_mntrain.model.errors import TrustError
from jupyter_mntrain.trust.certificates import subject_of

_PARTS = {
    "job_id": r"(?P<job_id>[^/]+)",
    "attempt": r"(?P<attempt>[1-9][0-9]{0,5})",
    "rank": r"(?P<rank>[0-9]{1,6})",
    "port": r"(?P<port>[1-9][0-9]{0,4})",
    "sha256": rf"(?P<sha256>{SHA256})",
    "transfer": rf"(?P<transfer>{SHA256})",
    "piece": r"(?P<piece>[0-9]{1,7})",
}

_HANDLERS: dict[Route, type[AgentHandler]] = {
    one.route: one
    for family in (node_routes, file_routes, job_routes)
    for one in vars(family).values()
    if isinstance(one, type) and issubclass(one, AgentHandler) and one.route is not None
}

ROUTES = tuple((route, route.format(**_PARTS), handler) for route, handler in _HANDLERS.items())

MAY: dict[tuple[Route, str], Roles] = {
    (route, method): roles
    for route, handler in _HANDLERS.items()
    for method, roles in handler.roles.items()
}
"""Which certificate may send which request. What is not in it is refused to all."""


class AgentApplication(Application):
    """Application that sends requests with too long a body to a handler that discards it."""

    def find_handler(self, request: HTTPServerRequest, **kwargs: Any) -> Any:
        if (body_length(request.headers) or 0) > MAX_BODY_BYTES:
            return self.get_handler_delegate(
                request, TooLarge, self.settings["default_handler_args"]
            )
        return super().find_handler(request, **kwargs)


def application(node: LocalNode, watch_tasks: WatchTasks) -> Application:
    """Make an application with all routes of :mod:`jupyter_mntrain.model.api`."""
    own: dict[str, Any] = {"node": node, "watch_tasks": watch_tasks}
    return AgentApplication(
        [URLSpec(path, handler, own) for _, path, handler in ROUTES],
        default_handler_class=NotFound,
        default_handler_args=own,
    )


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
