"""Path listener: answers trials of other nodes, on a random port and on some more, for seconds."""

from __future__ import annotations

import ipaddress
import secrets
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress

from jupyter_mntrain.agent.machine.links.drop_counters import (
    dropped_packets,
    half_open,
    port_range,
)
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.records.doctor.paths import PathHeard, PathListen, PathTicket

LIFE_S = tunables.seconds("doctor.path_listen_s")
TOKEN_BYTES = 16
ECHOED = b"e"
"""What is sent back; any other byte is one of many that are only received."""
HEADER_BYTES = 28
"""Of IP and UDP."""
SIZE = struct.Struct("=I")
_CHUNK_BYTES = 1 << 20
END_S = 0.5
"""A thread that gets no CPU time ends later, by itself."""
_IN_RANGE = 3
"""Ports of the kernel's range that are listened on: near its ends, and in its middle."""


class PathListener:
    """One that listens now. It ends by :meth:`end`, or by itself after ``doctor.path_listen_s``.

    Args:
        on_end: called once, in another thread.

    Raises:
        RefusedError: it cannot listen on that address.
    """

    def __init__(self, asked: PathListen, node: str, on_end: Callable[[], object] = bool) -> None:
        self._on_end = on_end
        self._token = secrets.token_hex(TOKEN_BYTES // 2).encode()
        self._stop = threading.Event()
        self._opened = ExitStack()
        self._selector = self._opened.enter_context(selectors.DefaultSelector())
        self._greeted: dict[socket.socket, bool] = {}
        """Connections, and whether their token was right and single bytes are sent back."""
        woken, self._waker = map(self._opened.enter_context, socket.socketpair())
        self._selector.register(woken, selectors.EVENT_READ, bool)  # only ends the waiting
        try:
            address = str(ipaddress.IPv4Address(asked.address))
            port = self._listen(address, 0)
            self._datagrams(address, port)
        except (OSError, ValueError) as error:
            self._opened.close()
            why = error.strerror if isinstance(error, OSError) else "it is not an IPv4 address"
            raise RefusedError(
                f"cannot listen on {asked.address}: {why}",
                fix="choose an interface that is up",
                node=node,
            ) from error
        self._range = port_range()
        ports = self._others(address, (*asked.ports, *_within(self._range)))
        self.ticket = PathTicket(
            token=self._token.decode(), port=port, ports=ports, range=self._range
        )
        self._dropped = dropped_packets()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def end(self) -> PathHeard:
        """Listen no more, and say what was seen. Blocks for a moment."""
        heard = PathHeard(
            dropped=max(0, dropped_packets() - self._dropped),
            half_open=half_open(frozenset({self.ticket.port, *self.ticket.ports})),
        )
        self._stop.set()
        with suppress(OSError):  # it has ended by itself
            self._waker.send(b"\0")
        self._thread.join(END_S)
        return heard

    def _listen(self, address: str, port: int) -> int:
        opened = self._opened.enter_context(socket.socket())
        # Without SO_REUSEADDR: it must not get a port that is held for a job.
        opened.bind((address, port))
        opened.listen(64)
        opened.settimeout(0.0)
        self._selector.register(opened, selectors.EVENT_READ, self._accept)
        return int(opened.getsockname()[1])

    def _datagrams(self, address: str, port: int) -> None:
        opened = self._opened.enter_context(socket.socket(type=socket.SOCK_DGRAM))
        opened.bind((address, port))
        opened.settimeout(0.0)
        self._selector.register(opened, selectors.EVENT_READ, self._answer)

    def _others(self, address: str, ports: Iterable[int]) -> tuple[int, ...]:
        """Listen on those of these ports that are free."""
        found = []
        for port in dict.fromkeys(ports):
            with suppress(OSError):
                found.append(self._listen(address, port))
        return tuple(found)

    def _serve(self) -> None:
        end_s = time.monotonic() + LIFE_S
        try:
            while not self._stop.is_set() and time.monotonic() < end_s:
                for key, _ in self._selector.select(end_s - time.monotonic()):
                    with suppress(OSError):
                        key.data(key.fileobj)
        finally:
            self._opened.close()
            for connection in self._greeted:
                connection.close()
            self._on_end()

    def _accept(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        connection.settimeout(0.0)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._greeted[connection] = False
        self._selector.register(connection, selectors.EVENT_READ, self._receive)

    def _receive(self, connection: socket.socket) -> None:
        try:
            found = connection.recv(_CHUNK_BYTES if self._greeted[connection] else TOKEN_BYTES)
        except BlockingIOError:
            return
        except OSError:
            found = b""
        if not found or (not self._greeted[connection] and found != self._token):
            self._selector.unregister(connection)
            del self._greeted[connection]
            connection.close()
        elif not self._greeted[connection] or found == ECHOED:
            self._greeted[connection] = True
            connection.send(ECHOED)

    def _answer(self, datagrams: socket.socket) -> None:
        found, sender = datagrams.recvfrom(1 << 16)
        if secrets.compare_digest(found[:TOKEN_BYTES], self._token):
            # A short answer: what is asked is whether the long way there works.
            datagrams.sendto(self._token + SIZE.pack(len(found) + HEADER_BYTES), sender)


class PathListeners:
    """Those that listen now, by token."""

    def __init__(self) -> None:
        self._open: dict[str, PathListener] = {}

    def open(self, asked: PathListen, node: str, on_end: Callable[[], object] = bool) -> PathTicket:
        """Begin to listen. Raises like :class:`PathListener`."""

        def ended() -> None:
            self._open.pop(listener.ticket.token, None)
            on_end()

        listener = PathListener(asked, node, ended)
        self._open[listener.ticket.token] = listener
        return listener.ticket

    def end(self, token: str) -> PathHeard:
        """What was seen; nothing if nothing listens by that token any more."""
        listener = self._open.get(token)
        return listener.end() if listener else PathHeard()


def _within(ports: tuple[int, int] | None) -> tuple[int, ...]:
    if ports is None or ports[1] - ports[0] < 2 * _IN_RANGE:
        return ()
    first, last = ports
    share = (last - first) // (2 * _IN_RANGE)
    inside = (first + (2 * at + 1) * share + secrets.randbelow(3) for at in range(_IN_RANGE))
    return tuple(one for one in inside if one >= 1024)
