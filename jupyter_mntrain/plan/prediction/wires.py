"""Wires: messages on their way at once share what their nodes' interfaces carry. Pure.

On each link one message follows the other. Messages from one node to several, or from several to
one, share its interface evenly, as TCP connections do; what comes in is apart from what goes out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping
from math import inf
from typing import Generic, TypeVar

from jupyter_mntrain.plan.prediction.simulated import Pair

Port = tuple[str, Hashable]
"""What goes out of a node, or comes in."""

T = TypeVar("T")


class Wires(Generic[T]):
    """Messages that are being sent, and how far they are.

    Args:
        rates: of each link alone, in whole messages per second.
        node_of: of a rank, whose links share its interface.
    """

    def __init__(self, rates: Mapping[Pair, float], node_of: Callable[[int], Hashable]) -> None:
        self._rates = rates
        self._ports: dict[Pair, tuple[Port, Port]] = {}
        self._capacity: dict[Port, float] = {}
        self._active: dict[Port, set[Pair]] = {}
        for pair, rate in rates.items():
            self._ports[pair] = ("out", node_of(pair[0])), ("in", node_of(pair[1]))
            for port in self._ports[pair]:
                self._capacity[port] = max(self._capacity.get(port, 0.0), rate)
                self._active[port] = set()
        self._queues: dict[Pair, deque[tuple[T, float]]] = {pair: deque() for pair in rates}
        self._left: dict[Pair, float] = {}
        """Share of the message in front that is still to be sent."""
        self._shared: dict[Pair, float] = {}
        """Rates at present."""
        self._at_s = 0.0

    def has(self, pair: Pair) -> bool:
        """Whether messages take time on a link."""
        return pair in self._rates

    def add(self, pair: Pair, message: T, now: float, size: float = 1.0) -> bool:
        """Send a message, or this part of one, after those before it on its link. Returns whether
        there are none.
        """
        self._advance(now)
        self._queues[pair].append((message, size))
        if len(self._queues[pair]) > 1:
            return False
        self._left[pair] = size
        for port in self._ports[pair]:
            self._active[port].add(pair)
        self._share(pair)
        return True

    def next_end(self) -> tuple[float, Pair] | None:
        """When and on which link a message ends next, if none is added before."""
        ends = ((self._at_s + left / self._shared[pair], pair) for pair, left in self._left.items())
        return min(ends, default=None)

    def end(self, pair: Pair, now: float) -> tuple[T, T | None]:
        """Take a link's message off it. Returns it and the one that follows."""
        self._advance(now)
        queue = self._queues[pair]
        ended, _ = queue.popleft()
        if queue:
            following, self._left[pair] = queue[0]
            return ended, following
        del self._left[pair]
        for port in self._ports[pair]:
            self._active[port].discard(pair)
        self._share(pair)
        return ended, None

    def _advance(self, now: float) -> None:
        for pair, left in self._left.items():
            self._left[pair] = max(0.0, left - (now - self._at_s) * self._shared[pair])
        self._at_s = now

    def _share(self, changed: Pair) -> None:
        """Set the rates of what shares a port with a link."""
        out, into = self._ports[changed]
        for pair in self._active[out] | self._active[into]:
            levels = (self._level(port) for port in self._ports[pair])
            self._shared[pair] = min(self._rates[pair], *levels)

    def _level(self, port: Port) -> float:
        """What each link may take at most, so that all of them have the port's capacity."""
        room, rates = self._capacity[port], sorted(self._rates[one] for one in self._active[port])
        for settled, rate in enumerate(rates):
            level = room / (len(rates) - settled)
            if rate > level:
                return level
            room -= rate
        return inf
