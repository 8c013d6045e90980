"""Losing proxy: ends the TLS of driver and agent, and drops the messages that a test names.

A request is lost before the agent gets it, a reply after the agent has done what was asked.
"""

from __future__ import annotations

import re
import socket
import ssl
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from jupyter_mntrain.trust.certificates import Subject
from tests import trusted
from tests.agent.live import LiveAgent

Lost = Literal["request", "reply"]

ROUTES = {
    "lease": re.compile(r"POST /v1/leases "),
    "start": re.compile(r"PUT /v1/jobs/[^/]+/attempts/"),
    "stop": re.compile(r"POST /v1/jobs/[^/]+/stop "),
    "release": re.compile(r"DELETE /v1/leases/"),
}
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class LosingProxy:
    """An agent's other address. What is in ``lose`` happens to the next requests of a route."""

    def __init__(self, agent: LiveAgent) -> None:
        self.agent = agent
        self.lose: dict[str, list[Lost]] = {route: [] for route in ROUTES}
        self.asked: Counter[str] = Counter()
        with tempfile.TemporaryDirectory() as path:
            subject = Subject(role="node", name=agent.info().node_id)
            self._context = trusted.make_credentials(Path(path), subject).server
        self._listener = socket.create_server((agent.address, 0))
        self._open: set[ssl.SSLSocket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def where(self) -> str:
        host, port = self._listener.getsockname()
        return f"{host}:{port}"

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in list(self._open):
            _hang_up(one)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                plain, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(plain,), daemon=True).start()

    def _serve(self, plain: socket.socket) -> None:
        with (
            suppress(OSError),
            self._context.wrap_socket(plain, server_side=True) as driver,
            self.agent.connect() as agent,
        ):
            self._open |= {driver, agent}
            try:
                self._talk(driver, agent)
            finally:
                self._open -= {driver, agent}

    def _talk(self, driver: ssl.SSLSocket, agent: ssl.SSLSocket) -> None:
        loses_reply = threading.Event()
        answers = threading.Thread(
            target=self._pass_on_answers, args=(agent, driver, loses_reply), daemon=True
        )
        answers.start()
        try:
            for head, body in _requests(driver):
                route = next((name for name, one in ROUTES.items() if one.match(head.decode())), "")
                self.asked[route] += 1
                lost = self.lose[route].pop(0) if self.lose.get(route) else None
                if lost == "request":
                    return
                if lost == "reply":
                    loses_reply.set()
                agent.sendall(head + body)
                if lost == "reply":
                    answers.join()
                    return
        finally:
            # Before the sockets are closed: OpenSSL reads by number, and the next connection of
            # this process gets the same one.
            _hang_up(agent)
            answers.join()

    def _pass_on_answers(
        self, agent: ssl.SSLSocket, driver: ssl.SSLSocket, loses_reply: threading.Event
    ) -> None:
        with suppress(OSError):
            while (block := agent.recv(65536)) and not loses_reply.is_set():
                driver.sendall(block)
        _hang_up(driver)


def _requests(driver: ssl.SSLSocket) -> Iterator[tuple[bytes, bytes]]:
    """Head and body of each, one after the other."""
    read = b""
    while True:
        while b"\r\n\r\n" not in read:
            if not (block := driver.recv(65536)):
                return
            read += block
        head, _, read = read.partition(b"\r\n\r\n")
        head += b"\r\n\r\n"
        found = _LENGTH.search(head)
        length = int(found[1]) if found else 0
        while len(read) < length:
            if not (block := driver.recv(65536)):
                return
            read += block
        yield head, read[:length]
        read = read[length:]


def _hang_up(one: ssl.SSLSocket) -> None:
    """End a connection that another thread may be using: its own ``shutdown`` would first drop
    TLS, and that thread would go on in plain text.
    """
    with suppress(OSError):
        socket.socket.shutdown(one, socket.SHUT_RDWR)


@contextmanager
def losing(agents: list[LiveAgent]) -> Iterator[list[LosingProxy]]:
    made = [LosingProxy(agent) for agent in agents]
    try:
        yield made
    finally:
        for one in made:
            one.close()
