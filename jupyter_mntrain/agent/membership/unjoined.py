"""Unjoined: an agent whose node is in no cluster says so to whoever asks, until it is in one.

A service that ended instead would look like a machine on which nothing listens, and nobody would
learn that its state directory was emptied.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from jupyter_mntrain.agent.membership import state as membership
from jupyter_mntrain.model.errors import MntrainError, TrustError
from jupyter_mntrain.model.ids import new_node_id
from jupyter_mntrain.trust.authority import self_signed
from jupyter_mntrain.trust.certificates import Subject, new_key
from jupyter_mntrain.trust.joining.join_server import refusing_server

log = logging.getLogger("mntrain.agent")

LOOK_EVERY_S = 0.5
"""Interval at which an agent that has not joined looks whether it has. It lets go of its port for
mntrain agent join within this time."""

Bind = Callable[[], Awaitable[list[socket.socket]]]


async def wait_until_joined(state: Path, bind: Bind, told: asyncio.Event) -> None:
    """Answer that this node has not joined; return once it has, or once told to end.

    While another process uses the state directory, as ``mntrain agent join`` does, the port is its.

    Args:
        bind: makes the sockets to listen on; a port that is taken is tried again.
    """
    while not told.is_set():
        if not _is_in_use(state):
            try:
                membership.joined(state)
            except TrustError as error:
                log.warning("%s", error)
            else:
                return
            await _answer(state, bind, told)
        await _pause(told)


async def _answer(state: Path, bind: Bind, told: asyncio.Event) -> None:
    """Serve until somebody uses the state directory, or the node has joined."""
    try:
        sockets = await bind()
    except MntrainError as error:
        log.warning("%s", error)
        return
    key = new_key()
    shown = self_signed(key, Subject(role="node", name=new_node_id()), datetime.now(UTC))
    with tempfile.TemporaryDirectory() as private:
        server = refusing_server(key, shown, sockets, Path(private))
    try:
        while not (told.is_set() or _is_in_use(state) or membership.find(state) is not None):
            await _pause(told)
    finally:
        server.stop()
        for one in sockets:
            one.close()
        await server.close_all_connections()


async def _pause(told: asyncio.Event) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(told.wait(), LOOK_EVERY_S)


def _is_in_use(state: Path) -> bool:
    """Whether another process holds the lock of :func:`node_id.locked_state`."""
    try:
        with FileLock(state / "lock", mode=0o600).acquire(timeout=0):
            return False
    except Timeout:
        return True
    except OSError:  # there is no such directory, or it is not ours to use: nobody joins there
        return False
