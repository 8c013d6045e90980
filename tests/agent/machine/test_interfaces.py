from __future__ import annotations

import socket

from jupyter_mntrain.agent.machine.interfaces import read_interfaces


def test_this_machine_has_a_loopback_that_is_read_as_one():
    found = {i.name: i for i in read_interfaces()}
    assert found["lo"].kind == "loopback"
    assert "127.0.0.1/8" in found["lo"].addresses
    assert set(found) == {name for _, name in socket.if_nameindex()}


def test_no_speed_is_unknown_not_zero():
    lo = next(i for i in read_interfaces() if i.name == "lo")
    assert lo.speed_mbit_per_s is None
