"""Link probe: measures round trips, then plain TCP for a second, to 1 % as accurate as iperf3."""

from __future__ import annotations

import fcntl
import ipaddress
import secrets
import selectors
import socket
import statistics
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Protocol

import psutil

from jupyter_mntrain.agent.machine.links.turn import CONDITIONS, ConditionWatch
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.records.node import Capacity, Condition, Latency, LinkMeasurement
from jupyter_mntrain.model.records.probes import (
    IO_TIMEOUT_S,
    LEAST_COUNTED_BYTES,
    LONGEST_MEASURE_S,
    LinkEnd,
    ProbeSend,
    ProbeTicket,
)
from jupyter_mntrain.telemetry import formulas

TICKET_LIFE_S = tunables.seconds("links.ticket_life_s")
WARM_UP_S = tunables.seconds("links.warm_up_s")
CHUNK_BYTES = 1 << 20
TOKEN_BYTES = 16
MIN_SECONDS = 0.2
"""Shortest measurement that an agent makes, whatever it is asked for: a shorter one measures
bursts."""
TCP_INFO_BYTES, SEGMENT_AT, SACKED_AT, RESENT_AT = 104, 16, 28, 100
"""``struct tcp_info``, ``linux/tcp.h``: where ``tcpi_snd_mss``, ``tcpi_sacked`` (segments) and
``tcpi_total_retrans`` (segments) are."""
READ_EVERY_S = 0.2
"""A measurement that is cut short keeps what had arrived by the last of these readings."""
LEAST_CHUNK_BYTES = 16 << 10
SHORT_S, LONG_S = 0.002, 0.02
"""Time in which a chunk is sent: if it is shorter, the next one is larger, so that a fast link is
not limited by calls; if it is longer, smaller, so that the end is not missed on a slow one."""
QUEUED_S = 0.5
"""Length of the send queue in the kernel while a link is measured: long enough to keep a fast link
busy, and short enough that a slow one is free again soon."""
LEAST_QUEUED_BYTES, MOST_QUEUED_BYTES = 64 << 10, 64 << 20
TCP_NOTSENT_LOWAT = 25
"""Bytes that may wait unsent, ``linux/tcp.h``; the socket module does not name it."""
SIOCOUTQ = 0x5411
"""Bytes accepted by the kernel but not yet acknowledged, ``linux/sockios.h``."""


HasJob = Callable[[], bool]


def open_sink(
    address: str,
    node: str,
    has_job: HasJob,
    on_end: Callable[[], object] = bool,
    *,
    streams: int = 1,
) -> ProbeTicket:
    """Listen for one sender, which must send the token. Closes after it, or if none connects in
    time.

    The sender's last answer is one byte: which of :data:`CONDITIONS` held here. Each sink has a
    thread per connection: the caller bounds their number.

    Args:
        streams: connections that the sender opens; each of them sends the token.
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
            _drain(listener, token.encode(), has_job, streams)
        finally:
            on_end()

    try:
        threading.Thread(target=serve, daemon=True).start()
    except RuntimeError as error:  # the system's limit of threads
        listener.close()
        raise RefusedError("no thread can be started", fix="try again later", node=node) from error
    return ProbeTicket(port=port, token=token, echoes=True)


def _drain(listener: socket.socket, token: bytes, has_job: HasJob, streams: int) -> None:
    with ExitStack() as opened:
        connections = []
        try:
            with listener:
                for _ in range(streams):
                    connection = opened.enter_context(listener.accept()[0])
                    connection.settimeout(IO_TIMEOUT_S)
                    if not secrets.compare_digest(_received(connection, TOKEN_BYTES), token):
                        return
                    connections.append(connection)
            first, *others = connections
            echo(first)
            watch = ConditionWatch(has_job)
            threads = [threading.Thread(target=_swallow, args=(one,)) for one in others]
            for thread in threads:
                thread.start()
            _swallow(first)
            for thread in threads:
                thread.join()
            first.sendall(bytes([CONDITIONS.index(watch.condition())]))
        except (OSError, RuntimeError):  # the sender is gone; the system's limit of threads
            return


def _swallow(connection: socket.socket) -> None:
    """Receive until the sender has sent everything, or falls silent."""
    buffer = bytearray(CHUNK_BYTES)
    end_s = time.monotonic() + WARM_UP_S + LONGEST_MEASURE_S + IO_TIMEOUT_S
    with suppress(OSError):
        while connection.recv_into(buffer) and time.monotonic() < end_s:
            pass


def _received(connection: socket.socket, size: int) -> bytes:
    """Read exactly this many bytes; fewer if the other end closes the connection."""
    found = b""
    while len(found) < size and (more := connection.recv(size - len(found))):
        found += more
    return found


def measure(
    request: ProbeSend, node: str, has_job: HasJob, own_end: LinkEnd | None = None
) -> LinkMeasurement:
    """Time round trips, then send for ``request.seconds`` (longer over a slow link), and count the
    bytes received after a warm-up. Blocks; use a thread.

    If the link stalls or breaks after a while, what was counted until then is the result, and its
    condition is "cut short".

    Args:
        own_end: of the interface, now.

    Raises:
        RefusedError: the peer's sink cannot be reached over this interface.
    """
    seconds = min(max(request.seconds, MIN_SECONDS), LONGEST_MEASURE_S)
    try:
        with ExitStack() as opened:
            connections = [
                opened.enter_context(_connected(request)) for _ in range(request.streams)
            ]
            latency = measure_latency(connections[0]) if request.echoes else None
            watch = ConditionWatch(has_job)
            sent = fill(_Connections(connections, request.interface), seconds)
            own = watch.condition()
            conditions = (own, "cut short" if sent.is_cut_short else _peer_condition(connections))
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
        latency=latency,
        streams=request.streams,
        ends=(own_end, request.receiver_end),
        capacity=Capacity(
            bytes_per_s=sent.counted_bytes_per_s,
            payload_share=sent.payload_bytes_per_s / sent.counted_bytes_per_s,
            source="measured",
            time_s=time.time(),
            condition=max(conditions, key=CONDITIONS.index),
        ),
    )


def _connected(request: ProbeSend) -> socket.socket:
    connection = socket.create_connection(
        (request.address, request.port),
        timeout=IO_TIMEOUT_S,
        source_address=(request.source_address, 0),
    )
    connection.sendall(request.token.encode())
    return connection


def _peer_condition(connections: Sequence[socket.socket]) -> Condition:
    """Read the receiver's condition, which it sends at the end. If that takes too long, the link is
    the bottleneck, not a busy CPU.
    """
    for connection in connections:
        connection.shutdown(socket.SHUT_WR)
    try:
        return CONDITIONS[connections[0].recv(1)[0]]
    except (OSError, IndexError):
        return "alone"


@dataclass(frozen=True, slots=True)
class Reading:
    """Bytes that had arrived, and that the interface had sent, at a point in time."""

    time_s: float
    payload_bytes: int
    counted_bytes: int | None


class Line(Protocol):
    """A link to send over, and the clock for measuring it."""

    segment_bytes: int
    """Payload of a full packet."""

    def now_s(self) -> float:
        """Return monotonic seconds."""

    def pieces(self) -> Iterator[int]:
        """Send endlessly; yield the bytes of each piece once it is in flight.

        Raises:
            TimeoutError: nothing could be sent for a while.
            OSError: the other end is gone.
        """

    def reading(self, sent_bytes: int) -> Reading:
        """Return how much of what was sent has arrived."""


@dataclass(frozen=True, slots=True)
class Sent:
    """Rates in bytes per second: of the payload, and as the interface counts them."""

    payload_bytes_per_s: float
    counted_bytes_per_s: float
    is_cut_short: bool = False

    @classmethod
    def between(
        cls, begin: Reading, end: Reading, segment_bytes: int, *, is_cut_short: bool = False
    ) -> Sent:
        interval_s = end.time_s - begin.time_s
        payload = (end.payload_bytes - begin.payload_bytes) / interval_s
        counted = None
        if begin.counted_bytes is not None and end.counted_bytes is not None:
            counted = (end.counted_bytes - begin.counted_bytes) / interval_s
        counted = formulas.counted_rate(payload, counted, segment_bytes)
        return cls(payload, counted, is_cut_short)


def fill(line: Line, seconds: float) -> Sent:
    """Fill a line, and count for ``seconds`` after a warm-up, or longer until at least
    :data:`LEAST_COUNTED_BYTES` have arrived.

    Raises:
        OSError: nothing arrived, or not for long enough.
    """
    counting = _Counting(line)
    try:
        for count in line.pieces():
            if (sent := counting.take(count, seconds)) is not None:
                return sent
    except OSError as error:
        return counting.cut_short(error)
    raise AssertionError("it is sent without end")


class _Counting:
    """Counts what has arrived over a line since the warm-up."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._warm_s, self._sent = line.now_s() + WARM_UP_S, 0
        self._begin: Reading | None = None
        self._last: Reading | None = None

    def take(self, count: int, seconds: float) -> Sent | None:
        """Add a piece that is in flight. Returns the result once enough was counted.

        Raises:
            TimeoutError: nothing has arrived for the longest time.
        """
        self._sent += count
        now_s = self._line.now_s()
        if now_s < self._warm_s:
            return None
        if self._begin is None or self._last is None:
            self._begin = self._last = self._line.reading(self._sent)
            return None
        counted_s = now_s - self._warm_s
        if counted_s < seconds and now_s - self._last.time_s < READ_EVERY_S:
            return None
        self._last = self._line.reading(self._sent)
        arrived = self._last.payload_bytes - self._begin.payload_bytes
        if counted_s < (seconds if arrived >= LEAST_COUNTED_BYTES else LONGEST_MEASURE_S):
            return None
        if not arrived:
            raise TimeoutError("timed out")
        return Sent.between(self._begin, self._last, self._line.segment_bytes)

    def cut_short(self, error: OSError) -> Sent:
        """Return what was counted before an error; raise the error if that is too little."""
        begin, last = self._begin, self._last
        if begin is None or last is None:
            raise error
        if isinstance(error, TimeoutError):  # the time in which nothing went counts, too
            last = self._line.reading(self._sent)
        is_long = last.time_s - begin.time_s >= MIN_SECONDS
        if not is_long or last.payload_bytes <= begin.payload_bytes:
            raise error
        return Sent.between(begin, last, self._line.segment_bytes, is_cut_short=True)


class _Connections:
    """A :class:`Line` that consists of connections over one interface."""

    def __init__(self, connections: Sequence[socket.socket], interface: str) -> None:
        self._connections, self._interface = connections, interface
        self.segment_bytes = connections[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)

    def now_s(self) -> float:
        return time.monotonic()

    def pieces(self) -> Iterator[int]:
        return _chunks(self._connections)

    def reading(self, sent_bytes: int) -> Reading:
        counters = psutil.net_io_counters(pernic=True).get(self._interface)
        return Reading(
            time_s=time.monotonic(),
            payload_bytes=sent_bytes - sum(map(_missing, self._connections)),
            counted_bytes=counters.bytes_sent if counters else None,
        )


def _chunks(connections: Sequence[socket.socket]) -> Iterator[int]:
    """Fill all connections endlessly; yield the number of bytes of each piece."""
    chunk, size = memoryview(bytes(CHUNK_BYTES)), LEAST_CHUNK_BYTES
    begun_s, sent = time.monotonic(), 0
    while len(connections) == 1:  # where one thread fills a link, the kernel waits best
        begin_s = time.monotonic()
        _bound_queue(connections[0], sent, begin_s - begun_s)
        count = connections[0].send(chunk[:size])
        sent += count
        yield count
        took_s = time.monotonic() - begin_s
        if took_s < SHORT_S:
            size = min(2 * size, CHUNK_BYTES)
        elif took_s > LONG_S:
            size = max(size // 2, LEAST_CHUNK_BYTES)
    of_file = {one.fileno(): one for one in connections}
    with selectors.DefaultSelector() as ready:
        for connection in connections:
            connection.settimeout(0.0)
            ready.register(connection, selectors.EVENT_WRITE)
        try:
            of_each = dict.fromkeys(of_file, 0)
            while events := ready.select(IO_TIMEOUT_S):
                count, passed_s = 0, time.monotonic() - begun_s
                for key, _ in events:
                    _bound_queue(of_file[key.fd], of_each[key.fd], passed_s)
                    took = of_file[key.fd].send(chunk)
                    of_each[key.fd] += took
                    count += took
                yield count
            raise TimeoutError("timed out")
        finally:
            for connection in connections:
                connection.settimeout(IO_TIMEOUT_S)


def _bound_queue(connection: socket.socket, sent: int, passed_s: float) -> None:
    """Limit the kernel's send queue to what the link carries in :data:`QUEUED_S`, judged by what
    has arrived so far. Otherwise it holds several megabytes, which take a slow link a quarter of a
    minute.
    """
    arrived = max(0, sent - unacknowledged(connection))
    most = int(arrived / max(passed_s, QUEUED_S) * QUEUED_S)
    connection.setsockopt(
        socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, min(max(most, LEAST_QUEUED_BYTES), MOST_QUEUED_BYTES)
    )


def resent(connection: socket.socket) -> int:
    """Return the number of packets that a connection has retransmitted."""
    return _tcp_info(connection, RESENT_AT)[0]


def _missing(connection: socket.socket) -> int:
    """Return the bytes sent that have not arrived, as far as the receiver has reported. After a
    loss, later data is not acknowledged for several round trips, but reported (SACK, RFC 2018).
    """
    waiting = unacknowledged(connection)
    segment_bytes, sacked = _tcp_info(connection, SEGMENT_AT, SACKED_AT)
    return max(0, waiting - sacked * segment_bytes)


def _tcp_info(connection: socket.socket, *places: int) -> list[int]:
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
    return [int(struct.unpack_from("=I", info, place)[0]) for place in places]


def unacknowledged(connection: socket.socket) -> int:
    """Return the bytes sent but not acknowledged yet."""
    answer = fcntl.ioctl(connection, SIOCOUTQ, struct.pack("i", 0))
    return int(struct.unpack("i", answer)[0])


MOST_TRIPS = 200
"""Round trips whose median and slowest hundredth are a link's latency, and the longest time for
them."""
TRIPS_S = 0.5
FEWEST_TRIPS = 3

ECHOED = b"e"
"""Any other byte is the first of what is sent in bulk."""


def measure_latency(connection: socket.socket) -> Latency:
    """Send single bytes that :func:`echo` returns, and time them.

    The first one, which may wait for a neighbor's address, counts nothing.

    Raises:
        OSError: the other end does not answer in the connection's time.
    """
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    one_way_s: list[float] = []
    round_trip_s(connection)
    end_s = time.monotonic() + TRIPS_S
    while len(one_way_s) < MOST_TRIPS and (
        time.monotonic() < end_s or len(one_way_s) < FEWEST_TRIPS
    ):
        one_way_s.append(round_trip_s(connection) / 2)
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
    while (byte := connection.recv(1)) == ECHOED:
        connection.sendall(byte)


def round_trip_s(connection: socket.socket, sent: bytes = ECHOED) -> float:
    begin_s = time.perf_counter()
    connection.sendall(sent)
    if connection.recv(1) != ECHOED:
        raise ConnectionError("the other end hung up")
    return time.perf_counter() - begin_s
