"""Path trial: tries the way to another node's :class:`PathListener`, address to address.

First connections to every port at once; then, over one of them, single bytes there and back, more
bytes than fit into one packet, and so many full packets that a line which loses 1 % of them is told
from one that loses none; then packets that may not be divided.
"""

from __future__ import annotations

import errno
import selectors
import socket
import statistics
import struct
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import NamedTuple

from jupyter_mntrain.agent.machine.interfaces import read_interfaces
from jupyter_mntrain.agent.machine.links.drop_counters import kept_packets
from jupyter_mntrain.agent.machine.links.path_listener import ECHOED
from jupyter_mntrain.agent.machine.links.path_mtu import find_mtu
from jupyter_mntrain.agent.machine.links.probe import unacknowledged
from jupyter_mntrain.agent.machine.neighbors import neighbors
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.records.doctor.paths import (
    Flow,
    PathsAsked,
    PathTarget,
    PathTrial,
    PortTrouble,
    PortTry,
    Resent,
)
from jupyter_mntrain.model.records.node import Interface

PATIENCE_S = tunables.seconds("doctor.path_patience_s")
LOAD_S = tunables.seconds("doctor.path_load_s")
LOAD_PACKETS = tunables.count("doctor.path_load_packets")
TRIED_BYTES = tunables.size("doctor.path_bytes")
SMALL_PACKETS = tunables.count("doctor.path_small_packets")

KNOCKS = 24
"""So many more are dropped by whoever lets none in; other packets that are dropped are few."""
KNOCK_S = 0.15
MOST_AT_ONCE = 16
_PIECE_BYTES = 64 << 10
"""Sent at once under load to all peers together, which is what each receives of all: it fits into
every switch's queue, so that only a bad line loses."""
_TALKS = 2
"""An agent that gets no CPU time for a second is not to blame, nor is a way for one packet."""
_ENOUGH_LOST = 20
"""By so many it is known how bad a line is; on a bad one, each costs some time."""
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
    """Try all of them at once. Blocks for 0.3 s where all is well, and for some seconds at most."""
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


def _connect_all(target: PathTarget, ports: Sequence[int]) -> tuple[PortTry, ...]:
    """Connect to all ports at once; what has not opened in time stays silent."""
    found: dict[int, PortTrouble | None] = {}
    with ExitStack() as opened, selectors.DefaultSelector() as waiting:
        for port in ports:
            connection, code = _begin(target, port, opened)
            if code in (0, errno.EINPROGRESS):
                waiting.register(connection, selectors.EVENT_WRITE, port)
            else:
                found[port] = _TROUBLES.get(code, "unreachable")
        end_s = time.monotonic() + PATIENCE_S
        while waiting.get_map() and (left_s := end_s - time.monotonic()) > 0:
            for key, _ in waiting.select(left_s):
                waiting.unregister(key.fileobj)
                assert isinstance(key.fileobj, socket.socket)  # noqa: S101 - nothing else is there
                code = key.fileobj.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                found[key.data] = _TROUBLES.get(code, "silent") if code else None
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
    """Begin many connections, to be found in the counters of whoever drops them."""
    with ExitStack() as opened:
        codes = [_begin(target, port, opened)[1] for _ in range(KNOCKS)]
        time.sleep(KNOCK_S)
    began = (0, errno.EINPROGRESS, errno.ECONNREFUSED)
    return sum(code in began for code in codes)


class _Talk(NamedTuple):
    """What came of a connection; as of :class:`PathTrial`."""

    flow: Flow | None = None
    round_trip_s: float | None = None
    load: Resent | None = None
    are_large_lost: bool = False


def _talk(target: PathTarget, piece_bytes: int) -> _Talk:
    """Round trips, then many bytes, then a load.

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
            round_trips_s += [_round_trip_s(connection, target.ticket.token.encode())]
            round_trips_s += [_round_trip_s(connection, ECHOED) for _ in range(SMALL_PACKETS)]
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
    """Whether even small packets were lost, or some of the large ones arrived and others did not.

    Args:
        small: before the large ones were sent; ``None`` if it did not come so far.
    """
    if small is None or small.again:
        return now.again > 0
    return now.delivered > small.delivered and now.again > 0


def _round_trip_s(connection: socket.socket, sent: bytes) -> float:
    begin_s = time.perf_counter()
    connection.sendall(sent)
    if connection.recv(1) != ECHOED:
        raise ConnectionError("the other end hung up")
    return time.perf_counter() - begin_s


def _arrives(connection: socket.socket, size: int) -> bool:
    """Send at least so many bytes in full packets, and see whether they are acknowledged in time.

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
    """Send piece after piece; packets that were sent again without need do not count."""
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
    """Packets of a connection: sent, sent again because they were lost, and arrived."""

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
    """The interface of the address that the kernel's route to the target begins at."""
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
