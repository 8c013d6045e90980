"""Saying by mDNS where this agent is. For finding only: a record outlives its node by an hour."""

from __future__ import annotations

import asyncio
import logging
import socket

from zeroconf import IPVersion, NonUniqueNameException, ServiceInfo
from zeroconf.asyncio import AsyncZeroconf

from jupyter_mntrain.model.api import SERVICE_TYPE, ServiceRecord
from jupyter_mntrain.model.node import Interface

log = logging.getLogger("mntrain.agent")


def announced_on(interfaces: tuple[Interface, ...], bound: tuple[str, ...]) -> tuple[str, ...]:
    """Addresses of this machine to announce from: every real interface that is up.

    An agent that listens on loopback alone can only be reached from here, and says so only here.
    """
    if all(address.startswith("127.") for address in bound):
        return ("127.0.0.1",)
    return tuple(
        cidr.partition("/")[0]
        for interface in interfaces
        if interface.is_up and interface.kind in {"ethernet", "wireless"}
        for cidr in interface.addresses
    )


class Announcer:
    """Keeps one service record announced; failing to is logged and never stops the agent."""

    def __init__(self, record: ServiceRecord, addresses: tuple[str, ...], port: int) -> None:
        label = f"{record.name.replace('.', '-')}-{record.node_id[:8]}"
        self._info = ServiceInfo(
            SERVICE_TYPE,
            f"{label}.{SERVICE_TYPE}",
            addresses=[socket.inet_aton(address) for address in addresses],
            port=port,
            properties={
                "node_id": record.node_id,
                "name": record.name,
                "cluster": record.cluster,
                "protocol": str(record.protocol),
            },
            server=f"mntrain-{record.node_id[:12]}.local.",
        )
        self._zeroconf: AsyncZeroconf | None = None
        self._from: tuple[str, ...] = ()
        self._lock = asyncio.Lock()

    async def announce(self, sources: tuple[str, ...]) -> None:
        """Announce from these addresses, anew if they are others than before.

        Takes 1.6 s: the protocol probes for the name first.
        """
        async with self._lock:
            if sources == self._from:
                return
            await self._withdraw()
            if not sources:
                log.warning("no network interface to announce on; add this node by its address")
                return
            try:
                self._zeroconf = AsyncZeroconf(
                    interfaces=list(sources), ip_version=IPVersion.V4Only
                )
                await (await self._zeroconf.async_register_service(self._info))
                self._from = sources
            except (OSError, NonUniqueNameException) as error:
                log.warning("not announced (%s); add this node by its address", error)
                await self._withdraw()

    async def close(self) -> None:
        async with self._lock:
            await self._withdraw()

    async def _withdraw(self) -> None:
        zeroconf, self._zeroconf, self._from = self._zeroconf, None, ()
        if zeroconf is not None:
            await zeroconf.async_unregister_all_services()
            await zeroconf.async_close()
