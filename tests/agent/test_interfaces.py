from __future__ import annotations

import socket
from pathlib import Path

import pytest

from jupyter_mntrain.agent.interfaces import interface_kind, read_interfaces
from jupyter_mntrain.model.node import Capacity

ETHERNET, LOOPBACK, NONE = "1", "772", "65534"


@pytest.fixture
def sysfs(tmp_path):
    def add(name: str, kind: str = ETHERNET, *, marks: tuple[str, ...] = (), devtype: str = ""):
        device = tmp_path / "class" / "net" / name
        device.mkdir(parents=True)
        (device / "type").write_text(f"{kind}\n")
        (device / "uevent").write_text(f"DEVTYPE={devtype}\n" if devtype else "IFINDEX=2\n")
        for mark in marks:
            (device / mark).mkdir()
        return tmp_path

    return add


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
        (ETHERNET, ("tun_flags",), "", "virtual"),
        (NONE, (), "wireguard", "virtual"),
        (LOOPBACK, (), "", "loopback"),
    ],
)
def test_kind_is_what_the_kernel_says_whatever_the_name(sysfs, kind, marks, devtype, expected):
    # Named like a real card on purpose: names prove nothing.
    root = sysfs("eth0", kind, marks=marks, devtype=devtype)
    assert interface_kind("eth0", root) == expected


def test_this_machine_has_a_loopback_that_is_read_as_one():
    found = {i.name: i for i in read_interfaces({})}
    assert found["lo"].kind == "loopback"
    assert "127.0.0.1/8" in found["lo"].addresses
    assert set(found) == {name for _, name in socket.if_nameindex()}


def test_no_speed_is_unknown_not_zero_and_a_capacity_is_attached():
    capacity = Capacity(bytes_per_s=1e8, source="given")
    lo = next(i for i in read_interfaces({"lo": capacity}) if i.name == "lo")
    assert lo.speed_mbit_per_s is None
    assert lo.capacity == capacity


def test_rdma_devices_are_found_by_their_network_card(sysfs, monkeypatch):
    root: Path = sysfs("lo", LOOPBACK)
    (root / "class" / "infiniband" / "mlx5_0" / "device" / "net" / "lo").mkdir(parents=True)
    lo = next(i for i in read_interfaces({}, root) if i.name == "lo")
    assert lo.rdma_device == "mlx5_0"
