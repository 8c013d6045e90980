"""Which of this machine's own addresses a driver looks for agents on."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import psutil

LOOPBACK = "127.0.0.1"
_NETWORKS = Path("/sys/class/net")
_VIRTUAL_NAME = re.compile(
    r"(docker|br-|veth|virbr|vnet|vmnet|cni|flannel|cali|tun|tap|utun|wg|tailscale|zt)\w*"
)
"""Names that container and VPN software gives its ends; nobody's agent is behind them."""


def browsing_addresses(networks: Path = _NETWORKS) -> tuple[str, ...]:
    """IPv4 addresses of every interface that is up and real, and loopback."""
    states = psutil.net_if_stats()
    found = [
        address.address
        for name, addresses in psutil.net_if_addrs().items()
        if name in states and states[name].isup and not _is_virtual(name, networks)
        for address in addresses
        if address.family == socket.AF_INET
    ]
    return tuple(sorted({*found, LOOPBACK}))


def _is_virtual(name: str, networks: Path) -> bool:
    # A bridge called br0 often holds a machine's own real address, so bridges are told by name.
    return (networks / name / "tun_flags").exists() or bool(_VIRTUAL_NAME.fullmatch(name))
