"""Bounded server: HTTPS in which strangers cannot use up the connections of members, or the
reverse.

A connection belongs to a stranger until its TLS handshake is over. Strangers have few places and
little time: a newcomer takes the oldest place of the address that has most, so that many
connections from one address hinder only that address.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.iostream import IOStream, SSLIOStream, StreamClosedError

from jupyter_mntrain.model._record import Record


class Bounds(Record, frozen=True):
    """Limits of a server.

    Args:
        handshakes: connections whose handshake is not over.
        handshake_s: time for a handshake.
        connections: in total, after the handshake.
        connections_each: of one member.
    """

    handshakes: int
    handshake_s: float
    connections: int
    connections_each: int


class Strangers:
    """Connections whose TLS handshake is not finished, by address."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._by_address: dict[str, dict[IOStream, None]] = defaultdict(dict)

    def __len__(self) -> int:
        return sum(map(len, self._by_address.values()))

    def add(self, address: str, stream: IOStream) -> IOStream | None:
        """Add a connection. If there are too many, remove one and return it, so that it can be
        closed.
        """
        self._by_address[address][stream] = None
        if len(self) <= self._most:
            return None
        greediest = max(self._by_address, key=lambda one: len(self._by_address[one]))
        oldest = next(iter(self._by_address[greediest]))
        self.remove(greediest, oldest)
        return oldest

    def remove(self, address: str, stream: IOStream) -> None:
        ours = self._by_address.get(address, {})
        ours.pop(stream, None)
        if not ours:
            self._by_address.pop(address, None)

    def all(self) -> list[IOStream]:
        return [stream for ours in self._by_address.values() for stream in ours]


class Rate:
    """Limits how often each address may do something: a token bucket per address.

    Args:
        per_s: how often, in the long run.
        burst: how often at once.
    """

    MOST_ADDRESSES = 1024

    def __init__(
        self, per_s: float, burst: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_s, self._burst, self._clock = per_s, burst, clock
        self._left: dict[str, tuple[float, float]] = {}
        """What each address has left, and when that was."""

    def allows(self, address: str) -> bool:
        now_s = self._clock()
        left, since_s = self._left.pop(address, (float(self._burst), now_s))
        left = min(self._burst, left + (now_s - since_s) * self._per_s)
        is_allowed = left >= 1
        self._left[address] = (left - is_allowed, now_s)
        if len(self._left) > self.MOST_ADDRESSES:
            del self._left[next(iter(self._left))]  # of the one not heard for longest
        return is_allowed


class BoundedServer(HTTPServer):
    """Server that closes connections beyond its bounds.

    Args:
        bounds: how many of them.
        member_of: whose a connection is, after its handshake: of a certificate or an address.
        rate: how often an address may connect; ``None`` = as often as it likes.
    """

    def initialize(  # type: ignore[override]
        self,
        *args: Any,
        bounds: Bounds,
        member_of: Callable[[IOStream, str], str],
        rate: Rate | None = None,
        **settings: Any,
    ) -> None:
        super().initialize(*args, **settings)
        self._bounds, self._member_of, self._rate = bounds, member_of, rate
        self._strangers = Strangers(bounds.handshakes)
        self._greetings: set[asyncio.Task[None]] = set()
        self._members: dict[IOStream, str] = {}

    def handle_stream(self, stream: IOStream, address: Any) -> None:
        host = address[0]
        if self._rate is not None and not self._rate.allows(host):
            stream.close()
            return
        if (unlucky := self._strangers.add(host, stream)) is not None:
            unlucky.close()
        greeting = asyncio.ensure_future(self._greet(stream, address))
        self._greetings.add(greeting)
        greeting.add_done_callback(self._greetings.discard)

    async def close_all_connections(self) -> None:
        for stream in self._strangers.all():
            stream.close()
        await super().close_all_connections()

    async def _greet(self, stream: IOStream, address: Any) -> None:
        assert isinstance(stream, SSLIOStream)  # noqa: S101 - the server has a TLS context
        host = address[0]
        try:
            await asyncio.wait_for(stream.wait_for_handshake(), self._bounds.handshake_s)
        except (OSError, ssl.SSLError, StreamClosedError, TimeoutError):
            stream.close()
            return
        finally:
            self._strangers.remove(host, stream)
        if stream.closed():  # since its handshake: nobody's certificate is to be had
            return
        member = self._member_of(stream, host)
        self._members = {one: whose for one, whose in self._members.items() if not one.closed()}
        same = sum(whose == member for whose in self._members.values())
        if same >= self._bounds.connections_each or len(self._members) >= self._bounds.connections:
            stream.close()
            return
        self._members[stream] = member
        super().handle_stream(stream, address)
