"""Path MTU: the largest packet that comes through without being divided. Needs no root."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Iterable

from jupyter_mntrain.agent.machine.links.path_listener import HEADER_BYTES, SIZE, TOKEN_BYTES
from jupyter_mntrain.model.records.doctor.paths import PathTarget

SMALLEST = 128
LARGEST = 65535
ROUNDS, STEPS = 4, 12
"""So often so many sizes are tried at once: of 9,000 bytes, it is found to one."""
ANSWER_S = 0.15
_TRIES = 3
_IP_MTU_DISCOVER, _IP_PMTUDISC_PROBE = 10, 3
"""``linux/in.h``: don't fragment, and do not heed what routers said."""


def find_mtu(target: PathTarget, own_mtu: int) -> tuple[int | None, bool]:
    """The largest packet to a target that is answered, and whether this machine's firewall forbids
    to send. Blocks for :data:`ANSWER_S` times :data:`ROUNDS` at most.

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
    """Send packets of these sizes; those that came through."""
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
    """Raises PermissionError if this machine's firewall forbids it."""
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
