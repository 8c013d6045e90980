"""Bandwidth probe: plain TCP for a second, as accurate as iperf3 (measured to 1 %)."""

from __future__ import annotations

import fcntl
import ipaddress
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil

from jupyter_mntrain.agent.machine.condition import CONDITIONS, ConditionWatch
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.api import ProbeSend, ProbeTicket
from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.records.node import Capacity, Condition, LinkMeasurement
from jupyter_mntrain.telemetry import formulas

TICKET_LIFE_S = tunables.seconds("links.ticket_life_s")
IO_TIMEOUT_S = tunables.seconds("links.io_timeout_s")
WARM_UP_S = tunables.seconds("links.warm_up_s")
CHUNK_BYTES = 1 << 20
TOKEN_BYTES = 16
MIN_SECONDS = tunables.seconds("links.shortest_measure_s")
MAX_SECONDS = tunables.seconds("links.longest_measure_s")
TCP_INFO_BYTES, RESENT_AT = 104, 100
"""``tcpi_total_retrans`` is the last of these bytes of ``struct tcp_info``."""
SIOCOUTQ = 0x5411
"""Bytes accepted by the kernel but not yet acknowledged, ``linux/sockios.h``."""


HasJob = Callable[[], bool]


def open_sink(
    address: str, node: str, has_job: HasJob, on_end: Callable[[], object] = bool
) -> ProbeTicket:
    """Listen for one sender, which must send the token. Closes after it, or if none comes in time.

    The sender's last answer is one byte: which of :data:`CONDITIONS` held here. Each sink has a
    thread: the caller bounds their number.

    Args:
        on_end: called once, in another thread, when the sink is closed.

    Raises:
        RefusedError: ``address`` is not one of this machine's.
    """
    try:
        listener = socket.create_server((str(ipaddress.IPv4Address(address)), 0))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not an IPv4 address"
        raise RefusedError(
            f"cannot listen on {address}: {why}",
            fix="choose an interface that is up",
            node=node,
        ) from error
    listener.settimeout(TICKET_LIFE_S)
    token = secrets.token_hex(TOKEN_BYTES // 2)
    port = listener.getsockname()[1]

    def serve() -> None:
        try:
            _drain(listener, token.encode(), has_job)
        finally:
            on_end()

    try:
        threading.Thread(target=serve, daemon=True).start()
    except RuntimeError as error:  # the system's limit of threads
        listener.close()
        raise RefusedError("no thread can be started", fix="try again later", node=node) from error
    return ProbeTicket(port=port, token=token)


def _drain(listener: socket.socket, token: bytes, has_job: HasJob) -> None:
    with listener:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
    with connection:
        connection.settimeout(IO_TIMEOUT_S)
        try:
            with connection.makefile("rb") as sent:
                if not secrets.compare_digest(sent.read(TOKEN_BYTES), token):
                    return
            buffer = bytearray(CHUNK_BYTES)
            watch = ConditionWatch(has_job)
            end_s = time.monotonic() + WARM_UP_S + MAX_SECONDS + IO_TIMEOUT_S
            while connection.recv_into(buffer) and time.monotonic() < end_s:
                pass
            connection.sendall(bytes([CONDITIONS.index(watch.condition())]))
        except OSError:
            return


def measure(request: ProbeSend, node: str, has_job: HasJob) -> LinkMeasurement:
    """Send for ``request.seconds``, count the bytes received after a warm-up. Blocks; use a thread.

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
            payload, counted = _send(connection, seconds, request.interface)
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
            bytes_per_s=counted,
            payload_share=payload / counted if counted else 1.0,
            source="measured",
            time_s=time.time(),
            condition=max(conditions, key=CONDITIONS.index),
        ),
    )


def _peer_condition(connection: socket.socket) -> Condition:
    """Read the receiver's condition, which it sends at the end. If that takes too long, the link
    is the bottleneck, not a busy CPU.
    """
    connection.shutdown(socket.SHUT_WR)
    try:
        return CONDITIONS[connection.recv(1)[0]]
    except (OSError, IndexError):
        return "alone"


@dataclass(frozen=True, slots=True)
class _Reading:
    """Bytes that had arrived, and that the interface had sent, at one time."""

    time_s: float
    payload_bytes: int
    counted_bytes: int | None

    @classmethod
    def take(cls, connection: socket.socket, sent: int, interface: str) -> _Reading:
        counters = psutil.net_io_counters(pernic=True).get(interface)
        return cls(
            time_s=time.monotonic(),
            payload_bytes=sent - unacknowledged(connection),
            counted_bytes=counters.bytes_sent if counters else None,
        )


def _send(connection: socket.socket, seconds: float, interface: str) -> tuple[float, float]:
    """Bytes per second: of the payload, and as the interface counts them."""
    chunk = memoryview(bytes(CHUNK_BYTES))
    start_s, sent = time.monotonic(), 0
    begin: _Reading | None = None
    while True:
        sent += connection.send(chunk)
        now_s = time.monotonic()
        if begin is None and now_s - start_s >= WARM_UP_S:
            begin = _Reading.take(connection, sent, interface)
        elif begin is not None and now_s - start_s >= WARM_UP_S + seconds:
            end = _Reading.take(connection, sent, interface)
            return _rates(begin, end, connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG))


def _rates(begin: _Reading, end: _Reading, segment_bytes: int) -> tuple[float, float]:
    interval_s = end.time_s - begin.time_s
    payload = (end.payload_bytes - begin.payload_bytes) / interval_s
    counted = None
    if begin.counted_bytes is not None and end.counted_bytes is not None:
        counted = (end.counted_bytes - begin.counted_bytes) / interval_s
    return payload, formulas.counted_rate(payload, counted, segment_bytes)


def resent(connection: socket.socket) -> int:
    """Packets of a connection that were sent again."""
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
    return int(struct.unpack_from("=I", info, RESENT_AT)[0])


def unacknowledged(connection: socket.socket) -> int:
    """Bytes sent but not acknowledged yet."""
    answer = fcntl.ioctl(connection, SIOCOUTQ, struct.pack("i", 0))
    return int(struct.unpack("i", answer)[0])
