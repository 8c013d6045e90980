"""HTTPS server of the agent: limits the connections that unauthenticated callers can hold."""

from __future__ import annotations

import ssl
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.iostream import IOStream
from tornado.web import Application

from jupyter_mntrain.agent.access.limits import (
    BODY_WITHIN_S,
    HEADERS_WITHIN_S,
    MAX_BODY_BYTES,
    MAX_HEADER_BYTES,
    MOST_CONNECTIONS,
    MOST_CONNECTIONS_EACH,
)


class AgentServer(HTTPServer):
    """Closes connections beyond a limit per address, and beyond a limit in total."""

    def handle_stream(self, stream: IOStream, address: Any) -> None:
        host = address[0]
        contexts: list[Any] = [connection.context for connection in self._connections]
        same = sum(context.remote_ip == host for context in contexts)
        if same >= MOST_CONNECTIONS_EACH or len(self._connections) >= MOST_CONNECTIONS:
            stream.close()
            return
        super().handle_stream(stream, address)


def agent_server(application: Application, context: ssl.SSLContext) -> AgentServer:
    """Make the server; the TLS context decides who may connect."""
    return AgentServer(
        application,
        ssl_options=context,
        max_body_size=MAX_BODY_BYTES,
        max_header_size=MAX_HEADER_BYTES,
        idle_connection_timeout=HEADERS_WITHIN_S,
        body_timeout=BODY_WITHIN_S,
    )
