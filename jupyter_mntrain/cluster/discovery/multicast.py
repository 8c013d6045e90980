"""Multicast self-test: checks that this machine receives its own announcement."""

from __future__ import annotations

import asyncio
import secrets
import socket
import struct
from collections.abc import Iterable
from contextlib import ExitStack

from jupyter_mntrain.model.api import SERVICE_TYPE

GROUP, PORT = "224.0.0.251", 5353
"""Multicast group and port of mDNS, RFC 6762 §3."""

TRIES = 3
"""Multicast queries of the self-test, and the timeout of each."""
TRY_S = 0.4


async def deaf_addresses(addresses: Iterable[str]) -> tuple[str, ...]:
    """Own addresses on which this machine does not receive its own multicast query.

    The kernel loops it back through the same firewall rules that packets of other machines must
    pass. Takes a second if there are any. An address that cannot be tried is omitted.
    """
    loop = asyncio.get_running_loop()
    with ExitStack() as opened:
        silent: dict[str, tuple[socket.socket, bytes]] = {}
        for address in addresses:
            try:
                silent[address] = opened.enter_context(_socket(address)), _question()
            except OSError:
                continue  # no multicast there, or the address is gone
        for _ in range(TRIES):
            for address, (own, question) in list(silent.items()):
                try:
                    own.sendto(question, (GROUP, PORT))
                except OSError:
                    del silent[address]
            until = loop.time() + TRY_S
            while silent and (left_s := until - loop.time()) > 0:
                await asyncio.sleep(min(0.02, left_s))
                silent = {one: pair for one, pair in silent.items() if not _has_come(*pair)}
        return tuple(silent)


def _socket(address: str) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        made.setblocking(False)  # noqa: FBT003 - that is its name
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "SO_REUSEPORT"):
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.bind(("", PORT))
        own = socket.inet_aton(address)
        made.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(GROUP) + own)
        made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, own)
        made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
    except OSError:
        made.close()
        raise
    return made


def _question() -> bytes:
    """An mDNS query with a random id, by which it is recognized."""
    name = b"".join(
        bytes([len(label)]) + label.encode() for label in SERVICE_TYPE.rstrip(".").split(".")
    )
    header = struct.pack(">6H", 1 + secrets.randbelow(0xFFFF), 0, 1, 0, 0, 0)
    return header + name + b"\0" + struct.pack(">2H", 12, 1)


def _has_come(own: socket.socket, question: bytes) -> bool:
    while True:
        try:
            if own.recv(9000) == question:
                return True
        except OSError:
            return False
