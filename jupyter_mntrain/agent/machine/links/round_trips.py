"""Round trips: sends one byte back and forth, over a connection like those of training."""

from __future__ import annotations

import socket
import statistics
import time

from jupyter_mntrain.model.records.node import Latency

MOST = 200
"""Round trips whose median and slowest hundredth are a link's latency, and the longest time for
them."""
MOST_S = 0.5
FEWEST = 3

_ECHOED = b"e"
"""Any other byte is the first of what is sent in bulk."""


def measure_latency(connection: socket.socket) -> Latency:
    """Send single bytes that :func:`echo` returns, and time them.

    The first one, which may wait for a neighbor's address, counts nothing.

    Raises:
        OSError: the other end does not answer in the connection's time.
    """
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    one_way_s: list[float] = []
    _round_trip_s(connection)
    end_s = time.monotonic() + MOST_S
    while len(one_way_s) < MOST and (time.monotonic() < end_s or len(one_way_s) < FEWEST):
        one_way_s.append(_round_trip_s(connection) / 2)
    ordered = sorted(one_way_s)
    return Latency(
        median_s=statistics.median(ordered),
        p99_s=ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)],
        count=len(ordered),
    )


def echo(connection: socket.socket) -> None:
    """Return single bytes until the other end sends something else, or nothing more.

    Raises:
        OSError: the other end is silent for the connection's time.
    """
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while (byte := connection.recv(1)) == _ECHOED:
        connection.sendall(byte)


def _round_trip_s(connection: socket.socket) -> float:
    begin_s = time.perf_counter()
    connection.sendall(_ECHOED)
    if connection.recv(1) != _ECHOED:
        raise ConnectionError("the other end hung up")
    return time.perf_counter() - begin_s
