"""Bandwidth probe: plain TCP for a second, as accurate as iperf3 (measured to 1 %)."""

from __future__ import annotations

import fcntl
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable

from jupyter_mntrain.agent.machine.condition import CONDITIONS, ConditionWatch
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.api import ProbeSend, ProbeTicket
from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.records.node import Capacity, Condition, LinkMeasurement

TICKET_LIFE_S = 10.0
IO_TIMEOUT_S = tunables.seconds("links.io_timeout_s")
WARM_UP_S = tunables.seconds("links.warm_up_s")
CHUNK_BYTES = 1 << 20
TOKEN_BYTES = 16
MIN_SECONDS, MAX_SECONDS = 0.2, 10.0
SIOCOUTQ = 0x5411
"""Bytes accepted by the kernel but not yet acknowledged, ``linux/sockios.h``."""


HasJob = Callable[[], bool]


def open_sink(address: str, node: str, has_job: HasJob) -> ProbeTicket:
    """Listen for one sender, who must show the token; gone after it or after 10 s.

    A sender that has finished is told, in one byte, which of :data:`CONDITIONS` held here.

    Raises:
        RefusedError: ``address`` is not one of this machine's.
    """
    try:
        listener = socket.create_server((address, 0))
    except OSError as error:
        raise RefusedError(
            f"cannot listen on {address}: {error.strerror}",
            fix="choose an interface that is up",
            node=node,
        ) from error
    listener.settimeout(TICKET_LIFE_S)
    token = secrets.token_hex(TOKEN_BYTES // 2)
    port = listener.getsockname()[1]
    words = (listener, token.encode(), has_job)
    threading.Thread(target=_drain, args=words, daemon=True).start()
    return ProbeTicket(port=port, token=token)


def _drain(listener: socket.socket, token: bytes, has_job: HasJob) -> None:
    buffer = bytearray(CHUNK_BYTES)
    with listener:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
    with connection:
        connection.settimeout(IO_TIMEOUT_S)
        try:
            if not secrets.compare_digest(_receive(connection, TOKEN_BYTES), token):
                return
            watch = ConditionWatch(has_job)
            end_s = time.monotonic() + WARM_UP_S + MAX_SECONDS + IO_TIMEOUT_S
            while connection.recv_into(buffer) and time.monotonic() < end_s:
                pass
            connection.sendall(bytes([CONDITIONS.index(watch.condition())]))
        except OSError:
            return


def _receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            return data
        data += piece
    return data


def measure(request: ProbeSend, node: str, has_job: HasJob) -> LinkMeasurement:
    """Send for ``request.seconds`` and count what arrived, after a warm-up. Blocks; use a thread.

    Raises:
        RefusedError: the peer's sink cannot be reached over this interface.
    """
    seconds = min(max(request.seconds, MIN_SECONDS), MAX_SECONDS)
    try:
        with socket.create_connection(
            (request.address, request.port),
            timeout=IO_TIMEOUT_S,
            source_address=(request.source_address, 0),
        ) as connection:
            connection.sendall(request.token.encode())
            watch = ConditionWatch(has_job)
            rate = _send(connection, seconds)
            conditions = watch.condition(), _peer_condition(connection)
    except (OSError, OverflowError) as error:
        raise RefusedError(
            f"no data from {request.source_address} ({request.interface}) to {request.peer} at "
            f"{request.address}: {error}",
            fix="check the firewall and the route between the two, or choose other interfaces",
            node=node,
        ) from error
    return LinkMeasurement(
        sender=node,
        receiver=request.peer,
        interface=request.interface,
        address=request.address,
        capacity=Capacity(
            bytes_per_s=rate,
            source="measured",
            time_s=time.time(),
            condition=max(conditions, key=CONDITIONS.index),
        ),
    )


def _peer_condition(connection: socket.socket) -> Condition:
    """The receiver's, once it has everything. A link so slow that this takes too long was not
    slowed down by a processor.
    """
    connection.shutdown(socket.SHUT_WR)
    try:
        return CONDITIONS[connection.recv(1)[0]]
    except (OSError, IndexError):
        return "alone"


def _send(connection: socket.socket, seconds: float) -> float:
    chunk = memoryview(bytes(CHUNK_BYTES))
    start = time.monotonic()
    begin_s, begin_bytes, sent = start, 0, 0
    while True:
        sent += connection.send(chunk)
        now = time.monotonic()
        if begin_bytes == 0 and now - start >= WARM_UP_S:
            begin_s, begin_bytes = now, sent - unacknowledged(connection)
        if now - start >= WARM_UP_S + seconds:
            return (sent - unacknowledged(connection) - begin_bytes) / (now - begin_s)


def unacknowledged(connection: socket.socket) -> int:
    """Bytes that were sent and have not arrived, as far as is known."""
    answer = fcntl.ioctl(connection, SIOCOUTQ, struct.pack("i", 0))
    return int(struct.unpack("i", answer)[0])
