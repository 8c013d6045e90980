"""Link trial: tests the links of a stalled or failed part between the addresses that its ranks use.

It uses a high port and more bytes than fit into one packet: only that reveals a firewall, a wrong
MTU or a dead cable. Single small packets come first. An MTU never costs one of them, so whoever had
to send one again loses packets of any size.
"""

from __future__ import annotations

import asyncio
import socket
import time

from jupyter_mntrain.agent.gang.peer_client import Peers
from jupyter_mntrain.agent.jobs.local_job import LocalJob
from jupyter_mntrain.agent.machine.interfaces import neighbors, read_interfaces
from jupyter_mntrain.agent.machine.links.probe import resent, unacknowledged
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.records.evidence import LinkTry, Trouble
from jupyter_mntrain.model.records.job import Placement
from jupyter_mntrain.model.records.probes import ProbeListen, ProbeTicket

PATIENCE_S = 3.0
"""Timeout for trying a link. A LAN answers in milliseconds; lost packets are resent after 0.2 s."""

TRIED_BYTES = 256 * 2**10
"""Bytes sent to try a link when ranks wait for each other."""
SMALL_PACKETS = 20
"""Small packets sent one by one before that: of a link that loses a third of them, one in 3,000
trials sees none lost."""
SMALL_BYTES = 32
SHORTEST_PAUSE_S = 0.001
LOOK_EVERY_S = 0.05
"""Interval of looking whether the bytes of a trial were acknowledged: on a LAN, in milliseconds."""


async def try_links(job: LocalJob, peers: Peers) -> tuple[LinkTry, ...]:
    """Test the links to the other participants. Takes a few seconds at most.

    A peer whose agent does not answer is not tried: its silence is reported elsewhere.
    """
    own = job.placement
    interface = next((one for one in read_interfaces() if one.name == own.interface), None)
    if interface is None or not interface.is_up:
        return (LinkTry(interface=own.interface, trouble="down"),)
    others = [place for place in job.record.attempt.placements if place.node_id != own.node_id]
    found = await asyncio.gather(*(_try_link(own, place, peers) for place in others))
    return tuple(one for one in found if one is not None)


async def _try_link(own: Placement, other: Placement, peers: Peers) -> LinkTry | None:
    try:
        ticket = await peers(other).probe_listen(ProbeListen(address=other.address))
    except MntrainError:
        return None
    trouble = await asyncio.to_thread(send_some, own.address, other.address, ticket)
    # Of two machines with one address, now one answers and now the other: who did just now?
    seen = next(iter(neighbors(own.interface, {other.address})), None)
    return LinkTry(interface=own.interface, trouble=trouble, peer=other.node, neighbor=seen)


def send_some(source: str, target: str, ticket: ProbeTicket) -> Trouble | None:
    """Connect and send data; return ``None`` if that works. Blocks."""
    try:
        connection = socket.create_connection(
            (target, ticket.port), timeout=PATIENCE_S, source_address=(source, 0)
        )
    except ConnectionRefusedError:
        return "refused"
    except OSError:
        return "no connection"
    with connection:
        is_lossy = False
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(ticket.token.encode())
            has_arrived = all(_arrives(connection, SMALL_BYTES) for _ in range(SMALL_PACKETS))
            is_lossy = resent(connection) > 0
            if has_arrived and _arrives(connection, TRIED_BYTES):
                return None
        except OSError:
            pass
        return "lossy" if is_lossy else "stuck"


def _arrives(connection: socket.socket, size: int) -> bool:
    """Send some bytes; return whether they are acknowledged in time."""
    deadline = time.monotonic() + PATIENCE_S
    connection.sendall(bytes(size))
    pause_s = SHORTEST_PAUSE_S
    while unacknowledged(connection):
        if time.monotonic() > deadline:
            return False
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, LOOK_EVERY_S)
    return True
