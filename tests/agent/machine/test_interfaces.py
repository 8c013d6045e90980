from __future__ import annotations

import socket
from pathlib import Path

from jupyter_mntrain.agent.machine.interfaces import read_interfaces
from tests.sysfs import LOOPBACK, sysfs

__all__ = ["sysfs"]


def test_this_machine_has_a_loopback_that_is_read_as_one():
    found = {i.name: i for i in read_interfaces()}
    assert found["lo"].kind == "loopback"
    assert "127.0.0.1/8" in found["lo"].addresses
    assert set(found) == {name for _, name in socket.if_nameindex()}


def test_no_speed_is_unknown_not_zero():
    lo = next(i for i in read_interfaces() if i.name == "lo")
    assert lo.speed_mbit_per_s is None


def test_rdma_devices_are_found_by_their_network_card(sysfs, monkeypatch):
    root: Path = sysfs("lo", LOOPBACK)
    (root / "class" / "infiniband" / "mlx5_0" / "device" / "net" / "lo").mkdir(parents=True)
    lo = next(i for i in read_interfaces(root) if i.name == "lo")
    assert lo.rdma_device == "mlx5_0"
