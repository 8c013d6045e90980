"""Local interfaces: lists the addresses on which a driver looks for agents."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import psutil

from jupyter_mntrain.telemetry.interfaces import SYSFS, interface_kind

LOOPBACK = "127.0.0.1"
_VIRTUAL_NAME = re.compile(r"(utun|tun|tap|bridge|vmnet|vnic|awdl|llw|ap)\d*")
"""Virtual interfaces by name, for macOS, whose kernel does not tell. No agents are behind them."""


def browsing_addresses(sysfs: Path = SYSFS) -> tuple[str, ...]:
    """IPv4 addresses of every interface that is up and not virtual, and loopback."""
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
