"""TCP: counters of this machine, and connections whose packets are not acknowledged."""

from __future__ import annotations

import socket
import struct
from collections.abc import Collection, Iterator
from pathlib import Path

from jupyter_mntrain.model.records.evidence import StuckConnection

PROC = Path("/proc")
LEAST_RESENDS = 3
"""An open connection is stuck if its oldest packet was sent again this often: TCP waits 0.2 s,
then twice as long each time. This many are kept with a failure."""
MOST_CONNECTIONS = 10

_ESTABLISHED = "01"
_RESEND_TIMER = "01"
"""States in ``/proc/net/tcp``, see proc_net_tcp.txt of the kernel."""


def counters(proc: Path = PROC) -> dict[str, int]:
    """Read the counters of ``/proc/net/snmp``; empty where there are none."""
    try:
        lines = (proc / "net" / "snmp").read_text().splitlines()
        names, values = [line.split()[1:] for line in lines if line.startswith("Tcp:")]
        return {name: int(value) for name, value in zip(names, values, strict=True)}
    except (OSError, ValueError):
        return {}


def stuck_connections(addresses: Collection[str], proc: Path = PROC) -> tuple[StuckConnection, ...]:
    """Find open connections from these addresses that send the same packet again and again."""
    try:
        lines = (proc / "net" / "tcp").read_text().splitlines()[1:]
    except OSError:
        return ()
    found = sorted(_stuck(lines, addresses), key=lambda one: -one.resends)
    return tuple(found[:MOST_CONNECTIONS])


def _stuck(lines: list[str], addresses: Collection[str]) -> Iterator[StuckConnection]:
    for line in lines:
        # sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt …
        _, local, remote, state, queues, timer, resends, *_ = line.split()
        is_stuck = timer.startswith(_RESEND_TIMER) and int(resends, 16) >= LEAST_RESENDS
        if state == _ESTABLISHED and is_stuck and _host(local) in addresses:
            unacknowledged = int(queues.partition(":")[0], 16)
            yield StuckConnection(
                peer=_host(remote),
                unacknowledged_bytes=unacknowledged,
                resends=int(resends, 16),
            )


def _host(endpoint: str) -> str:
    """``0100007F:1F90`` → ``127.0.0.1``: the kernel prints addresses in its own byte order."""
    return socket.inet_ntoa(struct.pack("=I", int(endpoint.partition(":")[0], 16)))
