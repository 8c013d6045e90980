"""Announcer: announces this agent by mDNS. For discovery only: records stay cached for hours after
a node is gone.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Sequence

import msgspec
from zeroconf import Error, IPVersion, ServiceInfo
from zeroconf.asyncio import AsyncZeroconf

from jupyter_mntrain.model.api import SERVICE_TYPE, ServiceRecord

log = logging.getLogger("mntrain.agent")


def service_info(record: ServiceRecord, addresses: Sequence[str]) -> ServiceInfo:
    """Build the mDNS announcement, with the addresses and the TXT record.

    Args:
        addresses: ``host:port``. A record holds one port and only IPv4 addresses; the agent itself
            reports the others.
    """
    hosts = [address.rpartition(":")[0] for address in addresses]
    # The instance keeps two machines with one node id apart.
    label = f"{record.name.replace('.', '-')}-{record.node_id[:8]}-{record.instance[:4]}"
    return ServiceInfo(
        SERVICE_TYPE,
        f"{label}.{SERVICE_TYPE}",
        addresses=[socket.inet_aton(host) for host in hosts if _is_ipv4(host)],
        port=int(addresses[0].rpartition(":")[2]),
        properties={
            key: str(value) for key, value in msgspec.structs.asdict(record).items() if value != ""
        },
        server=f"mntrain-{record.node_id[:12]}-{record.instance[:8]}.local.",
    )


def _is_ipv4(host: str) -> bool:
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return True


class Announcer:
    """Keeps one service record announced; failures are logged and never stop the agent."""

    def __init__(self) -> None:
        self._zeroconf: AsyncZeroconf | None = None
        self._told: tuple[object, ...] | None = None
        """The last announcement tried, successful or not."""
        self._lock = asyncio.Lock()

    async def announce(
        self, record: ServiceRecord, addresses: tuple[str, ...], sources: tuple[str, ...]
    ) -> None:
        """Announce a record from this machine's addresses ``sources``, unless it is announced
        already.
        """
        async with self._lock:
            told = (record, addresses, sources)
            is_news = told != self._told
            if not is_news and (self._zeroconf is not None or not sources):
                return
            await self._withdraw()
            self._told = told
            if not sources:
                log.warning("no network interface to announce on; add this node by its address")
                return
            try:
                self._zeroconf = AsyncZeroconf(
                    interfaces=list(sources), ip_version=IPVersion.V4Only
                )
                # Skip probing for the name, which takes a second: it contains 48 random bits.
                info = service_info(record, addresses)
                await (
                    await self._zeroconf.async_register_service(info, cooperating_responders=True)
                )
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
