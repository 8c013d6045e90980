"""Agent hosts: parses the addresses on which an agent listens, and finds the interfaces over
which other nodes reach it.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address
from urllib.parse import urlsplit

from jupyter_mntrain.model.records.node import Interface, NodeInfo


def loopback_host(node: NodeInfo) -> str | None:
    """Return the agent's loopback address if it listens on loopback only, else ``None``."""
    return _loopback_host(node.addresses)


def listed_interfaces(
    interfaces: Sequence[Interface], addresses: Sequence[str]
) -> tuple[Interface, ...]:
    """Return the interfaces over which others can reach a node, as listings and its history show.

    Args:
        addresses: ``host:port`` that its agent listens on. Over other interfaces than loopback an
            agent on loopback cannot be reached.
    """
    if _loopback_host(addresses):
        return tuple(one for one in interfaces if one.kind == "loopback")
    cards = (one for one in interfaces if one.kind in ("ethernet", "wireless"))
    return tuple(one for one in cards if one.is_up and one.addresses)


def _loopback_host(addresses: Sequence[str]) -> str | None:
    hosts = [host for address in addresses if (host := urlsplit(f"//{address}").hostname)]
    return hosts[0] if hosts and all(is_loopback(host) for host in hosts) else None


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
