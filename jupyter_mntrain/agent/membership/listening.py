"""Listening: the sockets that the agent listens on."""

from __future__ import annotations

import asyncio
import socket
import time

from tornado.netutil import bind_sockets

from jupyter_mntrain.agent.machine.ports import port_owner
from jupyter_mntrain.agent.membership.addresses import AddressSettings
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.errors import MntrainError

TRY_EVERY_S = tunables.seconds("agent.port_interval_s")


async def bind(settings: AddressSettings, within_s: float = 0.0) -> list[socket.socket]:
    """Bind to every address of the settings.

    Args:
        within_s: a port that is taken is tried again for so long.

    Raises:
        MntrainError: it is still taken, or an address is not this machine's.
    """
    until_s = time.monotonic() + within_s
    while True:
        try:
            return _bind(settings)
        except MntrainError:
            if time.monotonic() >= until_s:
                raise
        await asyncio.sleep(TRY_EVERY_S)


def _bind(settings: AddressSettings) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    for address in settings.bound:
        try:
            sockets += bind_sockets(settings.port, address)
        except OSError as error:
            for one in sockets:
                one.close()
            owner = port_owner(settings.port, address)
            raise MntrainError(
                f"cannot listen on {address}:{settings.port}: {error.strerror}"
                + (f": used by {owner}" if owner else ""),
                fix="choose another --port, or a --listen address of this machine",
            ) from error
    return sockets
