"""Holding a port for torchrun, and finding out who has one."""

from __future__ import annotations

import errno
import socket

import psutil

from jupyter_mntrain.model.errors import PortTakenError, RefusedError

ANY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 - compared with, never bound
LAST_PORT = 65535


class PortHolder:
    """A port that is bound but never listened on, for as long as the attempt lives.

    torchrun's store sets SO_REUSEADDR as we do, so Linux lets it listen on the same port, while
    other programs and the kernel's own choice of ephemeral ports do not get it (measured).
    """

    def __init__(self, bound: socket.socket) -> None:
        self._socket = bound
        self.port: int = bound.getsockname()[1]

    @classmethod
    def hold(cls, address: str, port: int, node: str) -> PortHolder:
        """Bind ``port``, 0 = any free one.

        Raises:
            PortTakenError: somebody listens on it.
            RefusedError: it cannot be bound for another reason.
        """
        fix = "leave the port out to get a free one, or choose another"
        if not 0 <= port <= LAST_PORT:
            raise RefusedError(f"{port} is not a port number", fix=fix, node=node)
        try:
            if port:
                # Binding alone would succeed beside a listener that torchrun would run into.
                with _reusable(address, port) as trial:
                    trial.listen()
            return cls(_reusable(address, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                cause = f"port {port} on {address} cannot be used: {error.strerror}"
                raise RefusedError(cause, fix=fix, node=node) from error
            owner = port_owner(address, port)
            by = f" by {owner}" if owner else ""
            raise PortTakenError(
                f"port {port} on {address} is taken{by}", fix=fix, node=node
            ) from error

    @classmethod
    def rebind(cls, address: str, port: int) -> PortHolder | None:
        """Of an attempt that runs already; ``None`` if its torchrun listens there itself."""
        try:
            return cls(_reusable(address, port))
        except OSError:
            return None

    def close(self) -> None:
        self._socket.close()


def port_owner(address: str, port: int) -> str | None:
    """Who listens on ``port``, where the system lets us see it."""
    try:
        connections = psutil.net_connections("tcp")
    except psutil.AccessDenied:
        return None
    for connection in connections:
        wanted = {(ip, port) for ip in (address, *ANY_ADDRESS)}
        if connection.status != psutil.CONN_LISTEN or tuple(connection.laddr) not in wanted:
            continue
        if connection.pid is None:
            return None
        try:
            return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
        except psutil.NoSuchProcess:
            return f"pid {connection.pid}"
    return None


def _reusable(address: str, port: int) -> socket.socket:
    bound = socket.socket()
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((address, port))
    except OSError:
        bound.close()
        raise
    return bound
