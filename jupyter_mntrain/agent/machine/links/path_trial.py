"""Path trial: tries the way to another node's :class:`PathListener`, address to address.

First connections to every port at once; then, over one of them, single bytes there and back, more
bytes than fit into one packet, and as many as go for a moment; then packets that may not be
divided.
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
TRIED_BYTES = tunables.size("doctor.path_bytes")
SMALL_PACKETS = tunables.count("doctor.path_small_packets")

KNOCKS = 24
"""So many more are dropped by whoever lets none in; other packets that are dropped are few."""
KNOCK_S = 0.15
MOST_AT_ONCE = 16
_PIECE_BYTES = 64 << 10
"""Sent at once under load: it fits into every switch's queue, so that only a bad line loses."""
_LOOK_S = 0.0005

_TCP_INFO_BYTES, _AGAIN_AT, _PACKETS_AT, _TWICE_AT = 220, 100, 156, 216
"""``struct tcp_info``, ``linux/tcp.h``: ``tcpi_total_retrans``, ``tcpi_data_segs_out`` and
``tcpi_dsack_dups``: those that were sent again although they had arrived."""

_TROUBLES: dict[int, PortTrouble] = {
    0: "silent",
    errno.ECONNREFUSED: "refused",
    errno.EADDRNOTAVAIL: "no source",
    errno.EHOSTUNREACH: "unreachable",
    errno.ENETUNREACH: "unreachable",
}


def try_paths(asked: PathsAsked, node: str, *, may_load: bool) -> tuple[PathTrial, ...]:
    """Try all of them at once. Blocks for about three seconds at most."""
    interfaces = {one.name: one for one in read_interfaces()}

    def try_one(target: PathTarget) -> PathTrial:
        load_s = LOAD_S if asked.is_loaded and may_load else 0.0
        return try_path(target, node, interfaces, load_s)

    if not asked.targets:
        return ()
    with ThreadPoolExecutor(min(len(asked.targets), MOST_AT_ONCE)) as threads:
        return tuple(threads.map(try_one, asked.targets))


def try_path(
    target: PathTarget, node: str, interfaces: dict[str, Interface], load_s: float
) -> PathTrial:
    ports = (target.ticket.port, *target.ticket.ports)
    kept = kept_packets()
    tries, knocks = _connect_all(target, ports), 0
    flow, round_trip_s, load = None, None, None
    if tries[0].trouble is None:
        try:
            flow, round_trip_s, load = _talk(target, load_s)
            if flow == "stuck":  # an agent that gets no CPU time for a second is not to blame
                flow, round_trip_s, load = _talk(target, 0.0)
        except TimeoutError:  # its kernel has answered, and its agent is busy
            pass
        except OSError:  # who answered is not the one that has the token
            tries = (PortTry(port=tries[0].port, trouble="another machine"), *tries[1:])
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
        flow=flow,
        path_mtu=path_mtu,
        round_trip_s=round_trip_s,
        load=load,
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


def _talk(target: PathTarget, load_s: float) -> tuple[Flow, float, Resent | None]:
    """Round trips, then many bytes, then as many as go.

    Raises:
        OSError: the token gets no answer.
    """
    address = (target.address, target.ticket.port)
    with socket.create_connection(address, PATIENCE_S, (target.source, 0)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        round_trips_s = [_round_trip_s(connection, target.ticket.token.encode())]
        is_lossy = False
        try:
            round_trips_s += [_round_trip_s(connection, ECHOED) for _ in range(SMALL_PACKETS)]
            is_lossy = _resent(connection).again > 0
            has_arrived = _arrives(connection, TRIED_BYTES)
        except OSError:
            is_lossy, has_arrived = is_lossy or _resent(connection).again > 0, False
        median_s = statistics.median(round_trips_s)
        if not has_arrived:
            return ("lossy" if is_lossy else "stuck"), median_s, None
        load = _load(connection, load_s) if load_s else None
        return "works", median_s, load


def _round_trip_s(connection: socket.socket, sent: bytes) -> float:
    begin_s = time.perf_counter()
    connection.sendall(sent)
    if connection.recv(1) != ECHOED:
        raise ConnectionError("the other end hung up")
    return time.perf_counter() - begin_s


def _arrives(connection: socket.socket, size: int) -> bool:
    """Send so many bytes, and see whether they are acknowledged in time."""
    deadline = time.monotonic() + PATIENCE_S
    connection.sendall(bytes(size))
    while unacknowledged(connection):
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_S)
    return True


def _load(connection: socket.socket, load_s: float) -> Resent:
    """Send piece after piece; packets that were sent again without need do not count."""
    before, end_s = _resent(connection), time.monotonic() + load_s
    with suppress(OSError):
        while time.monotonic() < end_s and _arrives(connection, _PIECE_BYTES):
            pass
    after = _resent(connection)
    return Resent(packets=after.packets - before.packets, again=max(0, after.again - before.again))


def _resent(connection: socket.socket) -> Resent:
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    if len(info) < _TCP_INFO_BYTES:  # a kernel before 4.19
        return Resent(packets=0, again=0)
    again, packets, twice = (
        struct.unpack_from("=I", info, place)[0] for place in (_AGAIN_AT, _PACKETS_AT, _TWICE_AT)
    )
    return Resent(packets=packets, again=max(0, again - twice))


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
