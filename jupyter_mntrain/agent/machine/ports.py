"""Ports: holds one for torchrun, and finds the process that uses a port."""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Collection, Iterator
from pathlib import Path

import psutil

from jupyter_mntrain.model.api import LAST_PORT
from jupyter_mntrain.model.errors import PortTakenError, RefusedError
from jupyter_mntrain.model.records.evidence import StuckConnection

# TCP: counters of this machine, and connections whose packets are not acknowledged.


PROC = Path("/proc")
LEAST_RESENDS = 3
"""An open connection is stuck if its oldest packet was sent again this often: TCP waits 0.2 s,
then twice as long each time. This many are kept with a failure."""
MOST_CONNECTIONS = 10

_ESTABLISHED = "01"
_RESEND_TIMER = "01"
"""States in ``/proc/net/tcp``, see proc_net_tcp.txt of the kernel."""


def counters(protocol: str, proc: Path = PROC, file: str = "snmp") -> dict[str, int]:
    """Read the kernel's counters of a protocol, from a line of names and a line of numbers; empty
    where there are none.
    """
    try:
        lines = (proc / "net" / file).read_text().splitlines()
        names, values = [line.split()[1:] for line in lines if line.startswith(f"{protocol}:")]
        return {name: int(value) for name, value in zip(names, values, strict=True)}
    except (OSError, ValueError):
        return {}


def tcp_sockets(proc: Path = PROC) -> list[list[str]]:
    """Return the words of each line of ``/proc/net/tcp``: sl, local_address, rem_address, st,
    tx_queue:rx_queue, tr:tm->when, retrnsmt and more.
    """
    try:
        lines = (proc / "net" / "tcp").read_text().splitlines()[1:]
    except OSError:
        return []
    return [words for line in lines if len(words := line.split()) > 6]


def stuck_connections(addresses: Collection[str], proc: Path = PROC) -> tuple[StuckConnection, ...]:
    """Find open connections from these addresses that keep retransmitting the same packet."""
    found = sorted(_stuck(tcp_sockets(proc), addresses), key=lambda one: -one.resends)
    return tuple(found[:MOST_CONNECTIONS])


def _stuck(sockets: list[list[str]], addresses: Collection[str]) -> Iterator[StuckConnection]:
    for _, local, remote, state, queues, timer, resends, *_ in sockets:
        is_stuck = timer.startswith(_RESEND_TIMER) and int(resends, 16) >= LEAST_RESENDS
        if state == _ESTABLISHED and is_stuck and host(local) in addresses:
            unacknowledged = int(queues.partition(":")[0], 16)
            yield StuckConnection(
                peer=host(remote),
                unacknowledged_bytes=unacknowledged,
                resends=int(resends, 16),
            )


def host(endpoint: str) -> str:
    """Convert ``0100007F:1F90`` to ``127.0.0.1``: the kernel uses its own byte order."""
    return socket.inet_ntoa(struct.pack("=I", int(endpoint.partition(":")[0], 16)))


ANY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 - compared with, never bound


class PortHolder:
    """A port that is bound, but never listened on, for the lifetime of an attempt.

    It is bound on every address, because torchrun's store listens on all of them: a port may be
    free on one address while a connection from another uses it. The store sets SO_REUSEADDR, as we
    do, so Linux lets it listen on the held port; other programs, and the kernel's choice of
    ephemeral ports, do not get it (measured).
    """

    def __init__(self, bound: socket.socket) -> None:
        self._socket = bound
        self.port: int = bound.getsockname()[1]

    @classmethod
    def hold(cls, address: str, port: int, node: str) -> PortHolder:
        """Bind ``port``; 0 means any free one.

        Args:
            address: that other nodes will connect to; must be this machine's.

        Raises:
            PortTakenError: it is in use on any address of this machine.
            RefusedError: it cannot be bound for another reason.
        """
        fix = "omit the port to get a free one, or choose another"
        if not 0 <= port <= LAST_PORT:
            raise RefusedError(f"{port} is not a valid port", fix=fix, node=node)
        try:
            with socket.socket() as here:
                here.bind((address, 0))
            if port:
                # Binding alone succeeds next to another listener, but torchrun would then fail.
                with _everywhere(port) as trial:
                    trial.listen()
            return cls(_everywhere(port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                cause = f"port {port} on {address} cannot be used: {error.strerror}"
                raise RefusedError(cause, fix=fix, node=node) from error
            owner = port_owner(port)
            by = f" by {owner}" if owner else ""
            raise PortTakenError(
                f"port {port} on {address} is taken{by}", fix=fix, node=node
            ) from error

    @classmethod
    def rebind(cls, port: int) -> PortHolder | None:
        """Hold the port of a running attempt; return ``None`` if its torchrun listens on it."""
        try:
            return cls(_everywhere(port))
        except OSError:
            return None

    def close(self) -> None:
        self._socket.close()


def port_owner(port: int, address: str | None = None) -> str | None:
    """Find the process that listens on ``port`` or is connected from it, if permitted.

    Args:
        address: only on this address; ``None`` = on any.
    """
    try:
        connections = psutil.net_connections("tcp")
    except psutil.AccessDenied:
        return None
    users = [
        one
        for one in connections
        if one.laddr
        and one.laddr.port == port
        and (address is None or one.laddr.ip in (address, *ANY_ADDRESS))
    ]
    users.sort(key=lambda one: one.status != psutil.CONN_LISTEN)
    pid = next((one.pid for one in users if one.pid is not None), None)
    if pid is None:
        return None
    try:
        return f"{psutil.Process(pid).name()} (pid {pid})"
    except psutil.NoSuchProcess:
        return f"pid {pid}"


def _everywhere(port: int) -> socket.socket:
    """Bind a port on every IPv4 and IPv6 address, like torchrun's store."""
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    bound = socket.socket(family)
    try:
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(("", port))
    except OSError:
        bound.close()
        raise
    return bound
