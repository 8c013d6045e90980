"""Kept connections: reuses HTTPS connections in threads, to transfer many large bodies.

A connection of its own for each piece of a file takes both sides 5 ms more of a core (measured). A
thread encrypts, and waits for, large bodies without holding up an event loop.
What is asked must be safe to repeat: the other side may have closed a kept connection meanwhile.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse, IncompleteRead
from typing import NamedTuple

from jupyter_mntrain.http.agent_calls import Into, Reply, Request

LARGE_REQUESTS = 32
"""Requests for pieces that a driver, or a node, has under way at once: each has a thread. Others
wait."""

CONNECT_S = 2.0
"""Timeout for connecting for a piece, as for other requests."""
MOST_ANSWER_BYTES = 256 << 20
"""Of a member. The longest are a job's journal and samples, of megabytes, and pieces of files."""
READ_BYTES = 64 * 2**10
"""How much of a piece is read at once, before it may be passed on."""
KEPT_S = 20.0
"""How long a connection for pieces stays open when it is idle: less than an agent keeps one,
after which the other side closes it."""

LOST = (OSError, HTTPException, ValueError)
"""Errors of a request that got no answer: a TLS error is an OSError, a bad address a ValueError."""


class KeptConnections:
    """Reusable connections from one member to others.

    Args:
        context: shows its certificate.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._threads = ThreadPoolExecutor(LARGE_REQUESTS, "mntrain large bodies")
        self._turns: set[_Turn] = set()
        self._lock = threading.Lock()
        self._idle: dict[tuple[str, str], list[_Connection]] = defaultdict(list)

    async def reply(
        self,
        address: str,
        name: str,
        request: Request,
        silent_s: float,
    ) -> Reply | None:
        """Send a request and return the answer, or ``None``. Canceling it closes its connection.

        Args:
            address: ``host:port``.
            name: that the other side's certificate must have.
            silent_s: how long the other side may be silent.
        """
        asked = _Asked(address, name, request, silent_s)
        turn = _Turn()
        self._turns.add(turn)
        work = asyncio.get_running_loop().run_in_executor(self._threads, self._send, asked, turn)
        try:
            return await asyncio.shield(work)
        except LOST:
            return None
        except asyncio.CancelledError:
            turn.cancel()
            work.add_done_callback(lambda done: done.cancelled() or done.exception())
            raise
        finally:
            self._turns.discard(turn)

    def close(self) -> None:
        """Abort running requests and accept no more."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for turn in self._turns:
            turn.cancel()
        with self._lock:
            for connection in (one for idle in self._idle.values() for one in idle):
                connection.close()
            self._idle.clear()

    def _send(self, asked: _Asked, turn: _Turn) -> Reply:
        kept = self._taken(asked)
        if kept is not None:
            try:
                return self._sent_over(kept, asked, turn)
            except LOST:
                if turn.is_canceled:
                    raise
        return self._sent_over(_Connection(asked, self._context), asked, turn)

    def _sent_over(self, connection: _Connection, asked: _Asked, turn: _Turn) -> Reply:
        try:
            answer = connection.sent(asked, turn)
        except BaseException:
            connection.close()
            raise
        with self._lock:
            self._idle[asked.address, asked.name].append(connection)
        return answer

    def _taken(self, asked: _Asked) -> _Connection | None:
        """Take an idle connection to a host. Connections that were idle for too long are closed."""
        now_s, taken = time.monotonic(), None
        with self._lock:
            for place, idle in list(self._idle.items()):
                for one in [one for one in idle if now_s - one.used_s > KEPT_S]:
                    idle.remove(one)
                    one.close()
                if idle and place == (asked.address, asked.name):
                    taken = idle.pop()
                if not idle:
                    del self._idle[place]
        return taken


class _Asked(NamedTuple):
    address: str
    name: str
    request: Request
    silent_s: float


class _Turn:
    """A request in a thread, which another thread can cancel."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self.is_canceled = False

    def begin(self, over: socket.socket) -> None:
        with self._lock:
            if self.is_canceled:
                raise ConnectionAbortedError
            self._socket = over

    def cancel(self) -> None:
        with self._lock:
            self.is_canceled = True
            if self._socket is not None:
                try:
                    self._socket.shutdown(socket.SHUT_RDWR)
                except OSError:  # it has ended by itself
                    return


class _Connection(HTTPConnection):
    def __init__(self, asked: _Asked, context: ssl.SSLContext) -> None:
        host, _, port = asked.address.rpartition(":")
        super().__init__(host.strip("[]"), int(port), timeout=CONNECT_S)
        self._context, self._name, self._silent_s = context, asked.name, asked.silent_s
        self.used_s = time.monotonic()

    def connect(self) -> None:
        super().connect()
        self.sock.settimeout(self._silent_s)
        self.sock = self._context.wrap_socket(self.sock, server_hostname=self._name)

    def sent(self, asked: _Asked, turn: _Turn) -> Reply:
        request = asked.request
        if self.sock is None:
            self.connect()
        turn.begin(self.sock)
        self.sock.settimeout(asked.silent_s)
        headers = {"Content-Type": "application/octet-stream"}
        self.request(request.method, request.path, request.body, headers)
        response = self.getresponse()
        answer = Reply(response.status < HTTPStatus.BAD_REQUEST, _body(response, request.into))
        self.used_s = time.monotonic()
        if response.will_close:
            self.close()  # the next request opens it again
        return answer


def _body(response: HTTPResponse, into: Into | None) -> bytes:
    """Read the body; return nothing if it was read into ``into``."""
    if into is None or response.status != HTTPStatus.OK or response.length != len(into.content):
        # Only without a number it tells what was cut off.
        if response.length is not None and response.length <= MOST_ANSWER_BYTES:
            return response.read()
        content = response.read(MOST_ANSWER_BYTES + 1)
        if len(content) > MOST_ANSWER_BYTES:
            raise HTTPException(f"an answer of more than {MOST_ANSWER_BYTES} bytes")
        return content
    view = memoryview(into.content)
    for begin in range(0, len(view), READ_BYTES):
        part = view[begin : begin + READ_BYTES]
        if response.readinto(part) != len(part):
            raise IncompleteRead(b"", len(view) - begin)
        into.came(begin + len(part))
    return b""
