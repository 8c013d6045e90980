"""Agent addresses: those that it listens on, and those that it announces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.api import DEFAULT_PORT
from jupyter_mntrain.model.records.node import Interface
from jupyter_mntrain.plan.agent_hosts import is_loopback

EVERYWHERE = "0.0.0.0"  # noqa: S104 - every request shows a certificate of the cluster
LOOPBACK = "127.0.0.1"


class AddressSettings(Record, frozen=True):
    """Addresses that the user gave. The interfaces supply the rest.

    Args:
        listen: IPv4 addresses to listen on, exactly these; none = all.
        advertised: ``host:port`` at which others reach it, if no interface of this machine has
            that address: in a container, or over a VPN.
        port: to listen on.
    """

    listen: tuple[str, ...] = ()
    advertised: tuple[str, ...] = ()
    port: int = DEFAULT_PORT

    @property
    def bound(self) -> tuple[str, ...]:
        return self.listen or (EVERYWHERE,)

    def addresses(self, interfaces: Sequence[Interface]) -> tuple[str, ...]:
        """Return ``host:port`` of each address, the most likely to work first."""
        if self.advertised:
            return self.advertised
        hosts = self.listen or tuple(real_addresses(interfaces)) or (LOOPBACK,)
        return tuple(f"{host}:{self.port}" for host in hosts)

    def hosts(self, interfaces: Sequence[Interface]) -> tuple[str, ...]:
        return tuple(address.rpartition(":")[0] for address in self.addresses(interfaces))

    def is_local(self, interfaces: Sequence[Interface]) -> bool:
        """Whether only this machine can reach the agent."""
        return all(map(is_loopback, self.hosts(interfaces)))

    def announced_from(self, interfaces: Sequence[Interface]) -> tuple[str, ...]:
        """Return the addresses to announce from: every real interface that is up.

        An agent that listens on loopback only is announced on loopback only.
        """
        if self.listen and all(map(is_loopback, self.listen)):
            return (LOOPBACK,)
        return tuple(real_addresses(interfaces)) or (LOOPBACK,)


def real_addresses(interfaces: Sequence[Interface]) -> Iterator[str]:
    """Return the IPv4 addresses of all network cards that are up."""
    for interface in interfaces:
        if interface.is_up and interface.kind in ("ethernet", "wireless"):
            for cidr in interface.addresses:
                yield cidr.partition("/")[0]
