"""Discovery: finds agents by mDNS. Whether a node is alive, its heartbeat decides."""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import socket
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import psutil

from jupyter_mntrain.cluster.loop import end_tasks
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.api import PROTOCOL, SERVICE_TYPE, ServiceRecord
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import NodeId
from jupyter_mntrain.model.text.foreign import shown_name
from jupyter_mntrain.telemetry.interfaces import SYSFS, interface_kind

if TYPE_CHECKING:
    from zeroconf import ServiceInfo, ServiceStateChange, Zeroconf
    from zeroconf.asyncio import AsyncServiceBrowser, AsyncZeroconf


# Local interfaces: lists the addresses on which a driver looks for agents.


LOOPBACK = "127.0.0.1"
_VIRTUAL_NAME = re.compile(r"(utun|tun|tap|bridge|vmnet|vnic|awdl|llw|ap)\d*")
"""Virtual interfaces by name, for macOS, whose kernel does not tell. No agents are behind them."""


def browsing_addresses(sysfs: Path = SYSFS) -> tuple[str, ...]:
    """Return the IPv4 addresses of every interface that is up and not virtual, and of loopback."""
    states = psutil.net_if_stats()
    found = [
        address.address
        for name, addresses in psutil.net_if_addrs().items()
        if name in states and states[name].isup and not _is_virtual(name, sysfs)
        for address in addresses
        if address.family == socket.AF_INET
    ]
    return tuple(sorted({*found, LOOPBACK}))


def _is_virtual(name: str, sysfs: Path) -> bool:
    if not (sysfs / "class" / "net").is_dir():
        return bool(_VIRTUAL_NAME.fullmatch(name))
    return interface_kind(name, sysfs) == "virtual"


# Multicast self-test: checks that this machine receives its own announcement.


GROUP, PORT = "224.0.0.251", 5353
"""Multicast group and port of mDNS, RFC 6762 §3."""

TRIES = 3
"""Multicast queries of the self-test, and the timeout of each."""
TRY_S = 0.4


async def deaf_addresses(addresses: Iterable[str]) -> tuple[str, ...]:
    """Return the addresses on which this machine does not receive its own multicast query.

    The kernel loops it back through the same firewall rules that packets of other machines must
    pass. Takes a second if there are any. An address that cannot be tried is omitted.
    """
    loop = asyncio.get_running_loop()
    with ExitStack() as opened:
        silent: dict[str, tuple[socket.socket, bytes]] = {}
        for address in addresses:
            try:
                silent[address] = opened.enter_context(_socket(address)), _question()
            except OSError:
                continue  # no multicast there, or the address is gone
        for _ in range(TRIES):
            for address, (own, question) in list(silent.items()):
                try:
                    own.sendto(question, (GROUP, PORT))
                except OSError:
                    del silent[address]
            until = loop.time() + TRY_S
            while silent and (left_s := until - loop.time()) > 0:
                await asyncio.sleep(min(0.02, left_s))
                silent = {one: pair for one, pair in silent.items() if not _has_come(*pair)}
        return tuple(silent)


def _socket(address: str) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        made.setblocking(False)  # noqa: FBT003 - that is its name
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "SO_REUSEPORT"):
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.bind(("", PORT))
        own = socket.inet_aton(address)
        made.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(GROUP) + own)
        made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, own)
        made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
    except OSError:
        made.close()
        raise
    return made


def _question() -> bytes:
    """Return an mDNS query with a random id, by which it is recognized."""
    name = b"".join(
        bytes([len(label)]) + label.encode() for label in SERVICE_TYPE.rstrip(".").split(".")
    )
    header = struct.pack(">6H", 1 + secrets.randbelow(0xFFFF), 0, 1, 0, 0, 0)
    return header + name + b"\0" + struct.pack(">2H", 12, 1)


def _has_come(own: socket.socket, question: bytes) -> bool:
    while True:
        try:
            if own.recv(9000) == question:
                return True
        except OSError:
            return False


RESOLVE_TIMEOUT_S = 3.0
"""Timeout for an announcement whose SRV or TXT record is not in the cache yet."""

RESOLVE_TRIES = 5
"""Number of tries."""

MOST_ANNOUNCED = 512
"""Maximum number of candidates that are remembered: anyone can announce anything."""

INTERFACES_EVERY_S = 5.0
"""Interval of checks for new interfaces: a laptop that joins a network sees its nodes after
this."""


class FoundAgent(Record, frozen=True):
    """An announced agent. Everything is untrusted until the agent itself has answered.

    Args:
        addresses: ``host:port``, all of the same agent.
        cluster: claimed name of its cluster; ``None`` or empty = not announced.
        node_id: claimed node id; ``None`` = not announced.
        name: claimed name.
        authority: id of the cluster's authority; ``None`` = not announced.
        joining: the invitation to join with; empty for a member.
        instance: of that start of the agent; empty = not announced.
        protocol: its version.
        is_gone: whether it has been withdrawn, or was not renewed.
    """

    addresses: tuple[str, ...]
    cluster: str | None = None
    node_id: NodeId | None = None
    name: str = ""
    authority: str | None = None
    joining: str = ""
    instance: str = ""
    protocol: int = PROTOCOL
    is_gone: bool = False


class Discovery(ABC):
    """A way to find agents."""

    @abstractmethod
    async def start(self, on_found: Callable[[FoundAgent], None]) -> None:
        """Start, and return at once.

        Until :meth:`close`, ``on_found`` is called on this event loop for every agent found, and
        again when it announces itself again, its addresses change or it is gone.

        Raises:
            OSError: this machine cannot browse at all.
        """

    async def trouble(self) -> Problem | None:
        """Return the reason why agents may not be found, if any. May take a second."""
        return None

    @abstractmethod
    async def close(self) -> None:
        """Stop; ``on_found`` is not called afterwards. May be called without ``start``."""


class StaticDiscovery(Discovery):
    """Finds the given agents at once: for tests, and for networks without multicast."""

    def __init__(self, addresses: Iterable[str] = ()) -> None:
        self._addresses = tuple(addresses)

    async def start(self, on_found: Callable[[FoundAgent], None]) -> None:
        for address in self._addresses:
            on_found(FoundAgent(addresses=(address,)))

    async def close(self) -> None:
        pass


class MdnsDiscovery(Discovery):
    """Browses for ``_mntrain._tcp`` on every interface that is up and real, and on loopback.

    Args:
        addresses: returns this machine's IPv4 addresses to browse on; called every few seconds.
    """

    def __init__(self, addresses: Callable[[], Iterable[str]] = browsing_addresses) -> None:
        self._addresses = addresses
        self._zeroconf: AsyncZeroconf | None = None
        self._browser: AsyncServiceBrowser | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._found: dict[str, FoundAgent] = {}
        """By name of the service: what is withdrawn says no more than that."""

    async def start(self, on_found: Callable[[FoundAgent], None]) -> None:
        from zeroconf.asyncio import AsyncServiceBrowser, AsyncZeroconf

        # Explicit addresses: the library's "default" interface needs a default route, and "all"
        # would ask docker0 too (research cluster.md §2).
        self._zeroconf = AsyncZeroconf(interfaces=sorted(set(self._addresses())))

        def on_change(
            zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange
        ) -> None:
            if state_change.name != "Removed":
                self._spawn(self._resolve(zeroconf, service_type, name, on_found))
            elif found := self._found.pop(name, None):
                on_found(msgspec.structs.replace(found, is_gone=True))

        self._browser = AsyncServiceBrowser(
            self._zeroconf.zeroconf, SERVICE_TYPE, handlers=[on_change]
        )
        self._spawn(self._follow_interfaces(self._zeroconf))

    async def close(self) -> None:
        await end_tasks(self._tasks)
        if self._browser is not None:
            await self._browser.async_cancel()
        if self._zeroconf is not None:
            await self._zeroconf.async_close()
        self._browser = self._zeroconf = None

    async def trouble(self) -> Problem | None:
        real = [address for address in self._addresses() if address != LOOPBACK]
        deaf = await deaf_addresses(real)
        if not deaf:
            return None
        return Problem(
            kind=Kind.NO_MULTICAST,
            cause=f"no multicast is received on {', '.join(deaf)}, not even this machine's own: "
            "its firewall drops UDP port 5353",
            fix="open it, or add nodes by host:port",
        )

    async def _resolve(
        self,
        zeroconf: Zeroconf,
        service_type: str,
        name: str,
        on_found: Callable[[FoundAgent], None],
    ) -> None:
        from zeroconf.asyncio import AsyncServiceInfo

        info = AsyncServiceInfo(service_type, name)
        # An announcement carries all records: a query would cost up to 3 s per node.
        known = info.load_from_cache(zeroconf)
        for _ in range(RESOLVE_TRIES):
            # A lost packet must not hide a node for the lifetime of its record.
            known = known or await info.async_request(zeroconf, RESOLVE_TIMEOUT_S * 1000)
        if known and (found := read_announcement(info)):
            if name in self._found or len(self._found) < MOST_ANNOUNCED:
                self._found[name] = found
            on_found(found)

    async def _follow_interfaces(self, zeroconf: AsyncZeroconf) -> None:
        while True:
            await asyncio.sleep(INTERFACES_EVERY_S)
            with contextlib.suppress(OSError):  # an interface that disappeared meanwhile
                await zeroconf.async_update_interfaces(sorted(set(self._addresses())))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def read_announcement(info: ServiceInfo) -> FoundAgent | None:
    """Parse an announcement, which is untrusted; ``None`` if it cannot be used.

    Its texts are safe to show: names, and what is compared with our own.
    """
    from zeroconf import IPVersion

    text = {
        key.decode(errors="replace"): shown_name((value or b"").decode(errors="replace"))
        for key, value in info.properties.items()
    }
    try:
        record = msgspec.convert(text, ServiceRecord, strict=False)
    except msgspec.ValidationError:
        return None
    hosts = sorted(info.parsed_addresses(IPVersion.V4Only))
    # Another machine's 127.0.0.1 is ours: use loopback only if it announces nothing else.
    hosts = [host for host in hosts if not host.startswith("127.")] or hosts
    if not hosts or not info.port:
        return None
    return FoundAgent(
        addresses=tuple(f"{host}:{info.port}" for host in hosts),
        **msgspec.structs.asdict(record),
    )
