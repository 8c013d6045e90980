"""Connections: reads the kernel's counters of each TCP connection (``TCP_INFO``) over netlink.

As ``ss --tcp --info`` shows it; see ``sock_diag(7)`` and ``struct tcp_info`` of ``linux/tcp.h``.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
DUMP_REQUEST = 0x301
"""``NLM_F_REQUEST | NLM_F_DUMP``."""
DONE, ERROR = 3, 2
ESTABLISHED = 1 << 1
INET_DIAG_INFO = 2
TIMEOUT_S = 1.0
READ_BYTES = 1 << 20

_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBBI48x")
_ADDRESS_AT, _PEER_AT, _INODE_AT, _ATTRIBUTES_AT = 8, 24, 68, 72
_RTT_AT, _RESENT_AT, _ACKED_AT, _SEGMENTS_AT, _BUSY_AT = 68, 100, 120, 156, 168
_LEAST_INFO = 192
"""Size up to which ``tcp_info`` has these fields: Linux 4.10."""
MICROSECONDS = 1e-6


class TcpConnection(NamedTuple):
    """An open connection.

    Args:
        busy_s: with something to send that the receiver had room for.
    """

    inode: int
    own: str
    peer: str
    sent_bytes: int
    received_bytes: int
    busy_s: float
    segments: int
    resent: int
    rtt_s: float


def connections() -> list[TcpConnection]:
    """Read all open TCP connections of this network namespace; none where that is not possible."""
    found: list[TcpConnection] = []
    with suppress(OSError):
        for family in (socket.AF_INET, socket.AF_INET6):
            found += _dump(family)
    return found


def sockets_of(pid: int) -> set[int]:
    """Read the inodes of the sockets that a process has open."""
    found = set()
    with suppress(OSError):
        for one in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                target = str(one.readlink())
                if target.startswith("socket:["):
                    found.add(int(target[8:-1]))
    return found


def to_others(
    found: Collection[TcpConnection], inodes: Collection[int]
) -> dict[str, list[TcpConnection]]:
    """Select connections by their sockets, grouped by the peer's address."""
    by_peer: dict[str, list[TcpConnection]] = {}
    for one in found:
        if one.inode in inodes:
            by_peer.setdefault(one.peer, []).append(one)
    return by_peer


def _dump(family: int) -> Iterator[TcpConnection]:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as link:
        link.settimeout(TIMEOUT_S)
        body = _REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (INET_DIAG_INFO - 1), 0, ESTABLISHED)
        header = _HEADER.pack(_HEADER.size + len(body), SOCK_DIAG_BY_FAMILY, DUMP_REQUEST, 1, 0)
        link.send(header + body)
        while True:
            block = link.recv(READ_BYTES)
            while len(block) >= _HEADER.size:
                length, kind, *_ = _HEADER.unpack_from(block)
                if kind in (DONE, ERROR):
                    return
                if (one := _parse(block[_HEADER.size : length], family)) is not None:
                    yield one
                block = block[_aligned(length) :]


def _parse(message: bytes, family: int) -> TcpConnection | None:
    info = _attribute(message[_ATTRIBUTES_AT:], INET_DIAG_INFO)
    if len(info) < _LEAST_INFO:
        return None
    acked, received = struct.unpack_from("=QQ", info, _ACKED_AT)
    busy, no_room = struct.unpack_from("=QQ", info, _BUSY_AT)
    (rtt,) = struct.unpack_from("=I", info, _RTT_AT)
    (resent,) = struct.unpack_from("=I", info, _RESENT_AT)
    (segments,) = struct.unpack_from("=I", info, _SEGMENTS_AT)
    return TcpConnection(
        inode=struct.unpack_from("=I", message, _INODE_AT)[0],
        own=_address(message[_ADDRESS_AT:], family),
        peer=_address(message[_PEER_AT:], family),
        sent_bytes=acked,
        received_bytes=received,
        busy_s=max(0, busy - no_room) * MICROSECONDS,
        segments=segments,
        resent=resent,
        rtt_s=rtt * MICROSECONDS,
    )


def _attribute(block: bytes, wanted: int) -> bytes:
    while len(block) >= 4:
        length, kind = struct.unpack_from("=HH", block)
        if kind == wanted:
            return block[4:length]
        if length < 4:
            break
        block = block[_aligned(length) :]
    return b""


def _address(field: bytes, family: int) -> str:
    size = 4 if family == socket.AF_INET else 16
    return socket.inet_ntop(family, field[:size]).removeprefix("::ffff:")


def _aligned(length: int) -> int:
    return (length + 3) // 4 * 4
