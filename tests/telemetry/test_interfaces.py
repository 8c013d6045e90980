from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from jupyter_mntrain.telemetry.interfaces import interface_kind
from tests.sysfs import ETHERNET, LOOPBACK, NONE, sysfs

__all__ = ["sysfs"]
Add = Callable[..., Path]


@pytest.mark.parametrize(
    ("kind", "marks", "devtype", "expected"),
    [
        (ETHERNET, (), "", "ethernet"),
        (ETHERNET, ("device",), "", "ethernet"),
        (ETHERNET, (), "vlan", "ethernet"),
        (ETHERNET, ("bonding",), "bond", "ethernet"),
        (ETHERNET, ("wireless",), "wlan", "wireless"),
        (ETHERNET, ("bridge",), "bridge", "virtual"),
        (ETHERNET, ("brport",), "", "virtual"),
        (ETHERNET, ("brport", "device"), "", "virtual"),
        (ETHERNET, ("tun_flags",), "", "virtual"),
        (NONE, (), "wireguard", "virtual"),
        (LOOPBACK, (), "", "loopback"),
    ],
)
def test_kind_is_what_the_kernel_says_whatever_the_name(
    sysfs: Add, kind: str, marks: tuple[str, ...], devtype: str, expected: str
) -> None:
    # Named like a real card on purpose: names prove nothing.
    root = sysfs("eth0", kind, marks=marks, devtype=devtype)
    assert interface_kind("eth0", root) == expected


@pytest.mark.parametrize(
    ("ports", "expected"),
    [
        ({}, "virtual"),
        ({"veth1": (), "vnet0": ("tun_flags",)}, "virtual"),
        ({"veth1": (), "enp3s0": ("device",)}, "ethernet"),
        ({"enp3s0.7": ("lower_enp3s0",)}, "ethernet"),
    ],
)
def test_a_bridge_is_as_real_as_its_ports(
    sysfs: Add, ports: dict[str, tuple[str, ...]], expected: str
) -> None:
    """Hosts of virtual machines have their own address on a bridge that holds their card."""
    # Named like docker's on purpose.
    root = sysfs("docker0", marks=("bridge", *(f"brif/{name}" for name in ports)), devtype="bridge")
    for name, marks in ports.items():
        sysfs(name, marks=("brport", *marks))
    assert interface_kind("docker0", root) == expected
    assert {interface_kind(name, root) for name in ports} <= {"virtual"}
