"""Network paths: tests the path to another node, address to address, and answers such tests."""

from __future__ import annotations

import errno
import ipaddress
import secrets
import selectors
import socket
import statistics
import struct
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

from jupyter_mntrain.agent.machine.interfaces import neighbors, read_interfaces
from jupyter_mntrain.agent.machine.links.probe import (
    ECHOED,
    TOKEN_BYTES,
    round_trip_s,
    unacknowledged,
)
from jupyter_mntrain.agent.machine.ports import PROC, counters, host, tcp_sockets
from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.records.doctor.paths import (
    Flow,
    PathHeard,
    PathListen,
    PathsAsked,
    PathTarget,
    PathTicket,
    PathTrial,
    PortTrouble,
    PortTry,
    Resent,
)
from jupyter_mntrain.model.records.node import Interface

# Drop counters: packets that arrived and were not let in, and those that were not let out.
#
# The kernel counts a packet when it arrives and again when a socket's protocol gets it. Between the
# two is the firewall.


_OTHERWISE = ("InHdrErrors", "InAddrErrors", "ForwDatagrams", "InDiscards", "InUnknownProtos")
"""What else may become of a packet that arrives."""

_SYN_RECEIVED = "03"


def dropped_packets(proc: Path = PROC) -> int:
    """Return the number of packets that were dropped on arrival since the machine started."""
    ip = counters("Ip", proc)
    gathered = ip.get("ReasmReqds", 0) - ip.get("ReasmOKs", 0)
    arrived = ip.get("InReceives", 0) - ip.get("InDelivers", 0)
    return arrived - gathered - sum(ip.get(name, 0) for name in _OTHERWISE)


def kept_packets(proc: Path = PROC) -> int:
    """Return the number of TCP retransmissions that could not be sent since the machine started."""
    return counters("TcpExt", proc, "netstat").get("TCPRetransFail", 0)


def half_open(ports: frozenset[int], proc: Path = PROC) -> tuple[str, ...]:
    """Return addresses whose connections to a port were answered, but stayed half open."""
    found = {
        host(remote)
        for _, local, remote, state, *_ in tcp_sockets(proc)
        if state == _SYN_RECEIVED and int(local.partition(":")[2], 16) in ports
    }
    return tuple(sorted(found))


def port_range(proc: Path = PROC) -> tuple[int, int] | None:
    """Return the kernel's range of ephemeral ports, which Gloo, NCCL and torchrun use."""
    try:
        first, last = (proc / "sys/net/ipv4/ip_local_port_range").read_text().split()
        return int(first), int(last)
    except (OSError, ValueError):
        return None


# Path listener: answers trials of other nodes, on a random port and on some more, for seconds.


LIFE_S = 10.0
"""How long an agent listens for the trials of other nodes, which the driver ends after about 3
s."""
HEADER_BYTES = 28
"""Of IP and UDP."""
SIZE = struct.Struct("=I")
_CHUNK_BYTES = 1 << 20
END_S = 0.5
"""A thread that gets no CPU time ends later, by itself."""
_IN_RANGE = 3
"""Ports of the kernel's range that are listened on: near its ends, and in its middle."""


class PathListener:
    """Listener for path tests. It ends with :meth:`end`, or by itself after
    ``doctor.path_listen_s``.

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
        """Stop listening, and return what was seen. Blocks for a moment."""
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
    """Active listeners for path tests, by token."""

    def __init__(self) -> None:
        self._open: dict[str, PathListener] = {}

    def open(self, asked: PathListen, node: str, on_end: Callable[[], object] = bool) -> PathTicket:
        """Start a listener. Raises like :class:`PathListener`."""

        def ended() -> None:
            self._open.pop(listener.ticket.token, None)
            on_end()

        listener = PathListener(asked, node, ended)
        self._open[listener.ticket.token] = listener
        return listener.ticket

    def end(self, token: str) -> PathHeard:
        """Return what a listener has seen; nothing if there is none with that token any more."""
        listener = self._open.get(token)
        return listener.end() if listener else PathHeard()


def _within(ports: tuple[int, int] | None) -> tuple[int, ...]:
    if ports is None or ports[1] - ports[0] < 2 * _IN_RANGE:
        return ()
    first, last = ports
    share = (last - first) // (2 * _IN_RANGE)
    inside = (first + (2 * at + 1) * share + secrets.randbelow(3) for at in range(_IN_RANGE))
    return tuple(one for one in inside if one >= 1024)


# Path MTU: the largest packet that comes through without being divided. Needs no root.


SMALLEST = 128
LARGEST = 65535
ROUNDS, STEPS = 4, 12
"""Rounds, and sizes tried at once in each: enough to find an MTU of 9,000 to the byte."""
ANSWER_S = 0.15
_TRIES = 3
_IP_MTU_DISCOVER, _IP_PMTUDISC_PROBE = 10, 3
"""``linux/in.h``: don't fragment, and do not heed what routers said."""


def find_mtu(target: PathTarget, own_mtu: int) -> tuple[int | None, bool]:
    """Find the largest packet that a target answers, and whether this machine's firewall forbids
    sending. Blocks for :data:`ANSWER_S` times :data:`ROUNDS` at most.

    Args:
        own_mtu: of the interface; larger packets cannot be sent.
    """
    largest = min(own_mtu, LARGEST)
    token = target.ticket.token.encode()
    with socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        try:
            datagrams.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_PROBE)
            datagrams.bind((target.source, 0))
            datagrams.connect((target.address, target.ticket.port))
        except OSError:
            return None, False
        try:
            found = _answered(datagrams, token, [SMALLEST, largest] * _TRIES, largest)
            low = max(found, default=0)
            high = largest
            for _ in range(ROUNDS):
                if not low or high - low <= 1:
                    break
                sizes = sorted({low + (high - low) * at // STEPS for at in range(1, STEPS)} - {low})
                found = _answered(datagrams, token, sizes, sizes[-1])
                low = max(found, default=low)
                high = min((one for one in sizes if one > low), default=high)
        except PermissionError:
            return None, True
    return low or None, False


def _answered(
    datagrams: socket.socket, token: bytes, sizes: Iterable[int], largest: int
) -> set[int]:
    """Send packets of these sizes; return those that were answered."""
    for size in sizes:
        _send(datagrams, token.ljust(size - HEADER_BYTES, b"\0"))
    found: set[int] = set()
    end_s = time.monotonic() + ANSWER_S
    while largest not in found and (left_s := end_s - time.monotonic()) > 0:
        datagrams.settimeout(left_s)
        try:
            answer = datagrams.recv(TOKEN_BYTES + SIZE.size)
        except TimeoutError:
            break
        except OSError:  # what was sent before was refused
            continue
        if answer.startswith(token) and len(answer) == TOKEN_BYTES + SIZE.size:
            found.add(SIZE.unpack(answer[TOKEN_BYTES:])[0])
    return found


def _send(datagrams: socket.socket, data: bytes) -> None:
    """Send a packet. Raises PermissionError if this machine's firewall forbids it."""
    for _ in range(2):  # the first call may raise what became of an earlier packet
        try:
            datagrams.send(data)
        except PermissionError:
            raise
        except OSError as error:
            if error.errno == errno.EMSGSIZE:
                return
        else:
            return


# Path trial: tries the way to another node's :class:`PathListener`, address to address.
#
# First connections to every port at once; then, over one of them, single bytes there and back, more
# bytes than fit into one packet, and enough full packets to tell a line that loses 1 % of them from
# one that loses none; then packets that may not be divided.


PATIENCE_S = 1.3
"""A connection that has not opened by then is blocked: a packet that a LAN lost once is sent again
after 1 s."""
LOAD_S = 2.0
"""Longest time for sending the full packets below."""
LOAD_PACKETS = 2000
"""Full packets sent to each peer if no job trains at either end. Of 2,000, a line that loses 1 %
loses 20, and one that loses 0.1 % loses 2."""
TRIED_BYTES = 256 * 2**10
"""Small packets sent one by one, and bytes sent after them, to try a path."""
SMALL_PACKETS = 20
"""Small packets sent one by one, and bytes sent after them, to try a path."""

KNOCKS = 24
"""Connections tried. A firewall that lets none in drops as many packets; few others are dropped."""
KNOCK_S = 0.15
MOST_AT_ONCE = 16
_PIECE_BYTES = 64 << 10
"""Sent at once under load to all peers together, which is what each receives of all: it fits into
every switch's queue, so that only a bad line loses."""
_ASKED = 2
"""Connections to each port."""
_TALKS = 2
"""An agent that gets no CPU time for a second is not to blame, nor is a way for one packet."""
_ENOUGH_LOST = 20
"""Lost packets that show how bad a line is; on a bad one, each costs some time."""
_LOOK_S = 0.0005
_WORD_S = 0.02
"""In which the other end says that a packet has arrived twice: after what it acknowledges first."""

_TCP_INFO_BYTES = 220
_AGAIN_AT, _PACKETS_AT, _DELIVERED_AT, _TWICE_AT = 100, 156, 192, 216
"""``struct tcp_info``, ``linux/tcp.h``: ``tcpi_total_retrans``, ``tcpi_data_segs_out``,
``tcpi_delivered`` (also of those after a lost one) and ``tcpi_dsack_dups``: those that were sent
again although they had arrived."""

_TROUBLES: dict[int, PortTrouble] = {
    0: "silent",
    errno.ECONNREFUSED: "refused",
    errno.EADDRNOTAVAIL: "no source",
    errno.EHOSTUNREACH: "unreachable",
    errno.ENETUNREACH: "unreachable",
}


def try_paths(asked: PathsAsked, node: str, *, may_load: bool) -> tuple[PathTrial, ...]:
    """Test all paths at once. Blocks for 0.3 s if all is well, and for some seconds at most."""
    interfaces = {one.name: one for one in read_interfaces()}

    def try_one(target: PathTarget) -> PathTrial:
        is_loaded = asked.is_loaded and may_load and not target.ticket.is_busy
        piece = _PIECE_BYTES // len(asked.targets) if is_loaded else 0
        return try_path(target, node, interfaces, piece)

    if not asked.targets:
        return ()
    with ThreadPoolExecutor(min(len(asked.targets), MOST_AT_ONCE)) as threads:
        return tuple(threads.map(try_one, asked.targets))


def try_path(
    target: PathTarget, node: str, interfaces: dict[str, Interface], piece_bytes: int
) -> PathTrial:
    ports = (target.ticket.port, *target.ticket.ports)
    kept = kept_packets()
    tries, knocks = _connect_all(target, ports), 0
    talk = _Talk()
    for _ in range(_TALKS if tries[0].trouble is None else 0):
        try:
            talk = _talk(target, piece_bytes)
        except TimeoutError:  # its kernel has answered, and its agent is busy
            continue
        except OSError:  # who answered is not the one that has the token
            tries = (PortTry(port=tries[0].port, trouble="another machine"), *tries[1:])
            break
        if talk.flow != "stuck":
            break
    own = interfaces.get(target.interface)
    path_mtu, is_forbidden = find_mtu(target, own.mtu or 0 if own else 0)
    failed = [one for one in tries if one.trouble in ("silent", "refused", "unreachable")]
    is_kept = kept_packets() - kept >= sum(one.trouble == "silent" for one in failed) > 0
    if failed:
        knocks = _knock(target, failed[0].port)
    return PathTrial(
        node=node,
        peer=target.peer,
        interface=target.interface,
        source=target.source,
        address=target.address,
        tries=tries,
        flow=talk.flow,
        are_large_lost=talk.are_large_lost,
        path_mtu=path_mtu,
        round_trip_s=talk.round_trip_s,
        load=talk.load,
        leaves_by=_leaves_by(target, interfaces.values()),
        neighbor=next(iter(neighbors(target.interface, {target.address})), None),
        knocks=knocks,
        is_kept=bool(failed) and (is_kept or (is_forbidden and tries[0].trouble is not None)),
    )


def _connect_all(target: PathTarget, ports: tuple[int, ...]) -> tuple[PortTry, ...]:
    """Connect to all ports at once. Those that do not answer in time count as silent.

    Each is asked :data:`_ASKED` times: a line that loses 5 % of its packets loses one connection's
    first packet and its repetition once in 400 times, and such a line is not a firewall.
    """
    found: dict[int, PortTrouble | None] = {}
    with ExitStack() as opened, selectors.DefaultSelector() as waiting:
        for port in ports * _ASKED:
            connection, code = _begin(target, port, opened)
            if code in (0, errno.EINPROGRESS):
                waiting.register(connection, selectors.EVENT_WRITE, port)
            else:
                found[port] = _TROUBLES.get(code, "unreachable")
        end_s = time.monotonic() + PATIENCE_S
        while found.keys() < set(ports) and (left_s := end_s - time.monotonic()) > 0:
            for key, _ in waiting.select(left_s):
                waiting.unregister(key.fileobj)
                assert isinstance(key.fileobj, socket.socket)  # noqa: S101 - nothing else is there
                code = key.fileobj.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if not code:
                    found[key.data] = None
                else:
                    found.setdefault(key.data, _TROUBLES.get(code, "silent"))
    return tuple(PortTry(port=port, trouble=found.get(port, "silent")) for port in ports)


def _begin(target: PathTarget, port: int, opened: ExitStack) -> tuple[socket.socket, int]:
    connection = opened.enter_context(socket.socket())
    connection.settimeout(0.0)
    try:
        connection.bind((target.source, 0))
    except OSError as error:
        return connection, error.errno or errno.EADDRNOTAVAIL
    return connection, connection.connect_ex((target.address, port))


def _knock(target: PathTarget, port: int) -> int:
    """Open many connections, which show up in the counters of whatever drops them."""
    with ExitStack() as opened:
        codes = [_begin(target, port, opened)[1] for _ in range(KNOCKS)]
        time.sleep(KNOCK_S)
    began = (0, errno.EINPROGRESS, errno.ECONNREFUSED)
    return sum(code in began for code in codes)


class _Talk(NamedTuple):
    """Results of a connection, as in :class:`PathTrial`."""

    flow: Flow | None = None
    round_trip_s: float | None = None
    load: Resent | None = None
    are_large_lost: bool = False


def _talk(target: PathTarget, piece_bytes: int) -> _Talk:
    """Measure round trips, then send many bytes, then a load.

    Args:
        piece_bytes: of the load; 0 = none.

    Raises:
        OSError: the token gets no answer, and no packet was lost.
    """
    address = (target.address, target.ticket.port)
    with socket.create_connection(address, PATIENCE_S, (target.source, 0)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        round_trips_s: list[float] = []
        small = None
        try:
            round_trips_s += [round_trip_s(connection, target.ticket.token.encode())]
            round_trips_s += [round_trip_s(connection) for _ in range(SMALL_PACKETS)]
            small = _counted(connection)
            has_arrived = _arrives(connection, TRIED_BYTES)
        except OSError as error:
            is_lost = isinstance(error, TimeoutError) and _counted(connection).again > 0
            if not round_trips_s and not is_lost:
                raise
            has_arrived = False
        median_s = statistics.median(round_trips_s) if round_trips_s else None
        if has_arrived:
            load = _load(connection, piece_bytes) if piece_bytes else None
            return _Talk("works", median_s, load)
        now = _counted(connection)
        if _is_lossy(small, now):
            return _Talk("lossy", median_s)
        are_lost = small is not None and now.again > 0 and now.delivered == small.delivered
        return _Talk("stuck", median_s, are_large_lost=are_lost)


def _is_lossy(small: _Counted | None, now: _Counted) -> bool:
    """Return whether small packets were lost, or only some of the large ones.

    Args:
        small: before the large ones were sent; ``None`` if it did not come so far.
    """
    if small is None or small.again:
        return now.again > 0
    return now.delivered > small.delivered and now.again > 0


def _arrives(connection: socket.socket, size: int) -> bool:
    """Send at least this many bytes in full packets; return whether they are acknowledged in time.

    Each packet is a record of its own: else the kernel hands the card up to 64 KiB as one, which
    virtual networks lose as one.
    """
    deadline = time.monotonic() + PATIENCE_S
    packet = bytes(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG))
    for _ in range(0, size, len(packet)):
        connection.sendall(packet, socket.MSG_EOR)
    while unacknowledged(connection):
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_S)
    return True


def _load(connection: socket.socket, piece_bytes: int) -> Resent:
    """Send piece after piece, and count retransmissions, without those that proved unnecessary."""
    before, end_s = _counted(connection), time.monotonic() + LOAD_S
    found = before
    with suppress(OSError):
        while (
            time.monotonic() < end_s
            and found.packets - before.packets < LOAD_PACKETS
            and found.again - before.again < _ENOUGH_LOST
            and _arrives(connection, piece_bytes)
        ):
            found = _counted(connection)
    time.sleep(_WORD_S)
    found = _counted(connection)
    return Resent(packets=found.packets - before.packets, again=max(0, found.again - before.again))


class _Counted(NamedTuple):
    """Packets of a connection: sent, retransmitted because they were lost, and arrived."""

    packets: int
    again: int
    delivered: int


def _counted(connection: socket.socket) -> _Counted:
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    if len(info) < _TCP_INFO_BYTES:  # a kernel before 4.19
        return _Counted(0, 0, 0)
    again, packets, delivered, twice = (
        struct.unpack_from("=I", info, place)[0]
        for place in (_AGAIN_AT, _PACKETS_AT, _DELIVERED_AT, _TWICE_AT)
    )
    return _Counted(packets, max(0, again - twice), delivered)


def _leaves_by(target: PathTarget, interfaces: Iterable[Interface]) -> str:
    """Return the interface that the kernel's route to the target uses."""
    with socket.socket(type=socket.SOCK_DGRAM) as asked:
        try:
            asked.connect((target.address, target.ticket.port))
        except OSError:
            return ""
        source = asked.getsockname()[0]
    for one in interfaces:
        if any(address.partition("/")[0] == source for address in one.addresses):
            return one.name
    return "lo" if source.startswith("127.") else ""
