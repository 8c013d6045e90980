"""Dialing: as Gloo chooses by addresses, and NCCL does both ways."""

from __future__ import annotations

import pytest

from jupyter_mntrain.doctor.pair.dialing import is_dialed
from jupyter_mntrain.model.records.doctor.paths import PathTrial, PortTry


@pytest.mark.parametrize(
    ("source", "address", "head", "gloo", "nccl"),
    [
        ("10.0.0.2", "10.0.0.1", "other", True, True),
        ("10.0.0.1", "10.0.0.2", "other", False, True),
        ("10.0.0.1", "10.0.0.2", "peer", True, True),
        ("10.0.0.9", "10.0.0.10", "other", False, True),  # as numbers, not as text
    ],
)
def test_who_connects_to_whom(source: str, address: str, head: str, gloo: bool, nccl: bool):
    way = PathTrial(
        node="node",
        peer="peer",
        interface="eth0",
        source=source,
        address=address,
        tries=(PortTry(port=1024),),
    )
    assert is_dialed(way, head, is_gloo=True) is gloo
    assert is_dialed(way, head, is_gloo=False) is nccl
