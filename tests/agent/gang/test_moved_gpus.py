"""Another attempt in an allocation that was granted other cards."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from jupyter_mntrain.agent.gang.moved_gpus import as_granted, gpus_now
from jupyter_mntrain.model.api import LeaseGrant
from jupyter_mntrain.model.records.node import Gpu
from tests.model.lifecycle.test_restarts import place


@pytest.mark.parametrize(
    ("asked", "there", "free", "now"),
    [
        pytest.param([0, 1], {0, 1, 2}, [0, 1, 2], (0, 1), id="the same are there"),
        pytest.param([0, 1], {4, 5}, [4, 5], (4, 5), id="all are others"),
        pytest.param([1, 0], {1, 3}, [1, 3], (1, 3), id="one is another"),
        pytest.param([0, 1], {0, 3}, [3], (0, 3), id="a busy one is waited for"),
        pytest.param([0, 1], {2, 3}, [2], (0, 1), id="too few are free"),
        pytest.param([0, 1], set(), [], (0, 1), id="there is none"),
    ],
)
def test_those_that_are_there_stay_and_others_stand_in(
    asked: list[int], there: set[int], free: Sequence[int], now: tuple[int, ...]
) -> None:
    assert gpus_now(asked, there, free) == now


def grant(*indices: int, interface: str = "") -> LeaseGrant:
    gpus = tuple(
        Gpu(
            index=index,
            uuid=f"GPU-{index}",
            name="RTX",
            memory_total_bytes=1,
            memory_used_bytes=0,
            utilization=None,
            power_w=None,
            temperature_c=None,
        )
        for index in indices
    )
    return LeaseGrant(address="10.0.0.9", port=None, expires_s=1.0, gpus=gpus, interface=interface)


def test_an_attempt_is_placed_on_what_was_granted() -> None:
    asked = (place(0, gpus=(0, 1)), place(1, gpus=(1, 0)), place(2, gpus=(0, 1)), place(3))
    given = as_granted(asked, [grant(4, 5), grant(0, 1), grant(interface="eno2"), grant()])
    assert [one.gpus for one in given] == [(4, 5), (1, 0), (0, 1), ()]
    assert {one.address for one in given} == {"10.0.0.9"}
    assert [one.interface for one in given] == ["eth1", "eth1", "eno2", "eth1"]


def test_no_node_uses_rdma_where_one_is_another_machine_now() -> None:
    had = {"rdma_devices": ("mlx5_0:1",), "rdma_gid_index": 3}
    asked = [msgspec.structs.replace(place(number), **had) for number in (0, 1)]
    here = [msgspec.structs.replace(grant(), address=one.address) for one in asked]
    assert [one.rdma_devices for one in as_granted(asked, here)] == [("mlx5_0:1",)] * 2
    for moved in ({"address": "10.0.0.77"}, {"interface": "ens9"}):
        given = as_granted(asked, [here[0], msgspec.structs.replace(here[1], **moved)])
        assert [(one.rdma_devices, one.rdma_gid_index) for one in given] == [((), None)] * 2
