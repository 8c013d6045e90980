"""Saying by mDNS where this agent is. For finding only: a record outlives its node by an hour."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Sequence

from zeroconf import Error, IPVersion, ServiceInfo
from zeroconf.asyncio import AsyncZeroconf

from jupyter_mntrain.model.api import SERVICE_TYPE, ServiceRecord
from jupyter_mntrain.model.node import Interface

log = logging.getLogger("mntrain.agent")


def announced_on(interfaces: Sequence[Interface], bound: Sequence[str]) -> tuple[str, ...]:
    """Addresses of this machine to announce from: every real interface that is up.

    An agent that listens on loopback alone can only be reached from here, and says so only here.
    """
    if all(ipaddress.ip_address(address).is_loopback for address in bound):
        return ("127.0.0.1",)
    return tuple(
        cidr.partition("/")[0]
        for interface in interfaces
        if interface.is_up and interface.kind in {"ethernet", "wireless"}
        for cidr in interface.addresses
    )


def service_info(record: ServiceRecord, addresses: Sequence[str], port: int) -> ServiceInfo:
    """The announcement: every bound address, and who it is in the TXT record."""
    label = f"{record.name.replace('.', '-')}-{record.node_id[:8]}"
    return ServiceInfo(
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


class Announcer:
    """Keeps one service record announced; failing to is logged and never stops the agent."""

    def __init__(self, info: ServiceInfo) -> None:
        self._info = info
        self._zeroconf: AsyncZeroconf | None = None
        self._from: tuple[str, ...] | None = None
        """Where it was last tried, whether it worked or not."""
        self._lock = asyncio.Lock()

    async def announce(self, sources: tuple[str, ...]) -> None:
        """Announce from these addresses; from the ones tried last, try again only what failed.

        Takes 1.6 s: the protocol probes for the name first.
        """
        async with self._lock:
            is_news = sources != self._from
            if not is_news and (self._zeroconf is not None or not sources):
                return
            await self._withdraw()
            self._from = sources
            if not sources:
                log.warning("no network interface to announce on; add this node by its address")
                return
            try:
                self._zeroconf = AsyncZeroconf(
                    interfaces=list(sources), ip_version=IPVersion.V4Only
                )
                await (await self._zeroconf.async_register_service(self._info))
            except (OSError, Error) as error:
                await self._withdraw()
                if is_news:
                    reason = str(error) or type(error).__name__
                    log.warning("not announced (%s); add this node by its address", reason)
            else:
                log.info("announced on %s", ", ".join(sources))

    async def close(self) -> None:
        async with self._lock:
            await self._withdraw()

    async def _withdraw(self) -> None:
        zeroconf, self._zeroconf = self._zeroconf, None
        if zeroconf is not None:
            await zeroconf.async_unregister_all_services()
            await zeroconf.async_close()
