"""Network interfaces: reads this machine's addresses, state and speed."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection
from pathlib import Path

import psutil

from jupyter_mntrain.model.records.evidence import Neighbor
from jupyter_mntrain.model.records.node import Interface
from jupyter_mntrain.telemetry.interfaces import SYSFS, interface_kind

# Neighbors: which machine the kernel sends to for an address of the network, by its ARP table.


PROC = Path("/proc")
_COMPLETE = 0x2
"""``ATF_COM`` of ``linux/if_arp.h``: the MAC address is valid."""


def neighbors(
    interface: str, addresses: Collection[str], proc: Path = PROC
) -> tuple[Neighbor, ...]:
    """Return the kernel's neighbor table, without addresses that it has not sent to lately.

    Ranks and interfaces have IPv4 addresses, so IPv6's table says nothing of them.
    """
    try:
        lines = (proc / "net" / "arp").read_text().splitlines()[1:]
    except OSError:
        return ()
    # IP address, HW type, Flags, HW address, Mask, Device
    rows = [words for line in lines if len(words := line.split()) == 6]
    return tuple(
        Neighbor(address=address, mac=mac if int(flags, 16) & _COMPLETE else "")
        for address, _, flags, mac, _, device in rows
        if device == interface and address in addresses
    )


def read_interfaces(sysfs: Path = SYSFS) -> tuple[Interface, ...]:
    """Read all interfaces of this network namespace, with loopback last.

    Args:
        sysfs: mount point of sysfs.
    """
    states = psutil.net_if_stats()
    addresses = psutil.net_if_addrs()

    def read(name: str) -> Interface:
        state = states[name]
        own = addresses.get(name, [])
        return Interface(
            name=name,
            kind=interface_kind(name, sysfs),
            is_up=state.isup,
            addresses=tuple(
                str(ipaddress.ip_interface(f"{a.address}/{a.netmask or 32}"))
                for a in own
                if a.family == socket.AF_INET
            ),
            mac=next((a.address for a in own if a.family == psutil.AF_LINK), None),
            mtu=state.mtu,
            came_up=_came_up(sysfs / "class" / "net" / name / "carrier_up_count"),
            # Virtual cards report 0 or -1: unknown, not "no speed".
            speed_mbit_per_s=state.speed if state.speed > 0 else None,
        )

    found = [read(name) for name in states]
    return tuple(sorted(found, key=lambda i: (i.kind == "loopback", i.name)))


def _came_up(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # a kernel before 4.16
        return None
