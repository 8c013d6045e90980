"""Network interfaces, judged by what they are, not by their names or address ranges."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping
from pathlib import Path

import psutil

from jupyter_mntrain.model.node import Capacity, Interface, InterfaceKind

SYSFS = Path("/sys")
_LOOPBACK_TYPE = "772"
"""ARPHRD_LOOPBACK, ``linux/if_arp.h``."""
_CARD_TYPES = frozenset({"1", "32"})
"""ARPHRD_ETHER and ARPHRD_INFINIBAND, which is IP over InfiniBand."""
_VIRTUAL_DEVTYPES = frozenset({"bridge", "wireguard", "vxlan", "geneve", "gre", "ppp"})


def interface_kind(name: str, sysfs: Path = SYSFS) -> InterfaceKind:
    """What an interface is. A bridge, a tunnel or a bridge's port is never chosen by itself.

    A veth that is no bridge port is a container's own network card: real, seen from inside.
    """
    device = sysfs / "class" / "net" / name
    kind = _read(device / "type")
    if kind == _LOOPBACK_TYPE:
        return "loopback"
    if (device / "wireless").exists() or (device / "phy80211").exists():
        return "wireless"
    is_virtual = (
        kind not in _CARD_TYPES
        or any((device / mark).exists() for mark in ("bridge", "brport", "tun_flags"))
        or _devtype(device) in _VIRTUAL_DEVTYPES
    )
    return "virtual" if is_virtual else "ethernet"


def read_interfaces(
    capacities: Mapping[str, Capacity], sysfs: Path = SYSFS
) -> tuple[Interface, ...]:
    """Every interface of this network namespace, loopback last.

    Args:
        capacities: measured or given ones by interface name.
        sysfs: where the kernel's view is mounted; tests bring their own.
    """
    states = psutil.net_if_stats()
    addresses = psutil.net_if_addrs()
    rdma = _rdma_devices(sysfs)

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
            # Virtual cards report 0 or -1: unknown, not "no speed".
            speed_mbit_per_s=state.speed if state.speed > 0 else None,
            rdma_device=rdma.get(name),
            capacity=capacities.get(name),
        )

    found = [read(name) for name in states]
    return tuple(sorted(found, key=lambda i: (i.kind == "loopback", i.name)))


def _rdma_devices(sysfs: Path) -> dict[str, str]:
    devices = sysfs / "class" / "infiniband"
    if not devices.is_dir():
        return {}
    return {
        net.name: device.name
        for device in sorted(devices.iterdir())
        for net in sorted((device / "device" / "net").glob("*"))
    }


def _devtype(device: Path) -> str:
    lines = _read(device / "uevent").splitlines()
    return next((line[8:] for line in lines if line.startswith("DEVTYPE=")), "")


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
