"""Agent hosts: parses the addresses that an agent says it listens on."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

from jupyter_mntrain.model.records.node import NodeInfo


def loopback_host(node: NodeInfo) -> str | None:
    """Return the agent's loopback address if it listens on loopback only, else ``None``."""
    hosts = [host for address in node.addresses if (host := urlsplit(f"//{address}").hostname)]
    return hosts[0] if hosts and all(is_loopback(host) for host in hosts) else None


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
