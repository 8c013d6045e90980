"""Interface kinds: classifies network interfaces by their entries in sysfs."""

from __future__ import annotations

from pathlib import Path

from jupyter_mntrain.model.records.node import InterfaceKind
from jupyter_mntrain.telemetry.kernel_files import kernel_text

SYSFS = Path("/sys")
_LOOPBACK_TYPE = "772"
"""ARPHRD_LOOPBACK, ``linux/if_arp.h``."""
_CARD_TYPES = frozenset({"1", "32"})
"""ARPHRD_ETHER and ARPHRD_INFINIBAND, which is IP over InfiniBand."""
_VIRTUAL_DEVTYPES = frozenset({"wireguard", "vxlan", "geneve", "gre", "ppp"})


def interface_kind(name: str, sysfs: Path = SYSFS) -> InterfaceKind:
    """Classify an interface; virtual ones are never chosen automatically.

    Tunnels, bridge ports, and bridges of virtual machines or containers are virtual. A bridge that
    has a network card among its ports counts as that card. A veth outside of any bridge counts as
    ethernet, too: it is a container's own network card.
    """
    device = sysfs / "class" / "net" / name
    kind = kernel_text(device / "type")
    if kind == _LOOPBACK_TYPE:
        return "loopback"
    if (device / "wireless").exists() or (device / "phy80211").exists():
        return "wireless"
    is_virtual = (
        kind not in _CARD_TYPES
        or (device / "brport").exists()
        or (device / "tun_flags").exists()
        or _devtype(device) in _VIRTUAL_DEVTYPES
        or ((device / "bridge").exists() and not _has_card(device))
    )
    return "virtual" if is_virtual else "ethernet"


def _has_card(bridge: Path) -> bool:
    """Whether a bridge has a port that is hardware, or a bond or VLAN of hardware."""
    return any(
        (port / "device").exists() or any(port.glob("lower_*"))
        for port in (bridge.parent / one.name for one in (bridge / "brif").glob("*"))
    )


def _devtype(device: Path) -> str:
    lines = kernel_text(device / "uevent").splitlines()
    return next((line[8:] for line in lines if line.startswith("DEVTYPE=")), "")
