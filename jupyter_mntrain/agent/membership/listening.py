"""Listening: opens the sockets that the agent listens on."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Sequence
from contextlib import suppress

import msgspec
from tornado.netutil import bind_sockets

from jupyter_mntrain.agent.machine.ports import port_owner
from jupyter_mntrain.agent.membership.state import AddressSettings, Settings
from jupyter_mntrain.model.api import LAST_PORT
from jupyter_mntrain.model.errors import MntrainError

NEAR_PORTS = 50
"""Number of ports tried above one that is in use."""
TRY_EVERY_S = 0.1
"""Interval of trying that."""


def with_port(settings: Settings, sockets: Sequence[socket.socket]) -> Settings:
    """Return the settings with the actual port, if they asked for any free one."""
    port = int(sockets[0].getsockname()[1])
    advertised = tuple(
        f"{host}:{port if given == '0' else given}"
        for host, _, given in (one.rpartition(":") for one in settings.advertised)
    )
    return msgspec.structs.replace(settings, port=port, advertised=advertised)


async def bind(settings: AddressSettings, within_s: float = 0.0) -> list[socket.socket]:
    """Bind to every address of the settings. Port 0 means any free one.

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
    port = settings.port
    for address in settings.bound:
        try:
            sockets += bind_sockets(port, address)
            port = sockets[0].getsockname()[1]  # if any will do, all addresses have the same
        except OSError as error:
            for one in sockets:
                one.close()
            owner = port_owner(port, address)
            free = _next_free(port, address)
            another = "choose another --port" + (f": {free} is free" if free else "")
            raise MntrainError(
                f"cannot listen on {address}:{port}: {error.strerror}"
                + (f": used by {owner}" if owner else ""),
                fix=f"{another}; or a --listen address of this machine",
            ) from error
    return sockets


def _next_free(port: int, address: str) -> int | None:
    """Return the next free port; ``None`` if none is near, or there is no such address."""
    for near in range(port + 1, min(port + NEAR_PORTS, LAST_PORT) + 1):
        with suppress(OSError):
            for one in bind_sockets(near, address):
                one.close()
            return near
    return None
