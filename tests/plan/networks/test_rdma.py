"""RDMA choice: all participants use InfiniBand or RoCE, or none does."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from jupyter_mntrain.launch.torchrun import network_environment
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.job import Participant, Placement
from jupyter_mntrain.model.records.node import NodeInfo, RdmaPort, RoceGid
from jupyter_mntrain.plan.arrange import arrange
from jupyter_mntrain.plan.networks.rdma import unused_rdma
from jupyter_mntrain.workload.hardware_notes import rdma_note
from tests.standin.nodes import gpu, nic, node
from tests.wording import says

SUBNET = "fe80:0000:0000:0000"


def infiniband(device: str, **fields: Any) -> RdmaPort:
    basis = {"device": device, "number": 1, "link": "InfiniBand", "state": "ACTIVE"}
    return RdmaPort(**(basis | {"subnet": SUBNET} | fields))


def roce(device: str, *gids: tuple[int, str], **fields: Any) -> RdmaPort:
    own = tuple(RoceGid(index=index, address=address) for index, address in gids)
    return infiniband(device, **({"link": "RoCE", "subnet": "", "gids": own} | fields))


def machine(number: int, *ports: RdmaPort, rails: int = 0) -> NodeInfo:
    """A node with a GPU, a network for management, and some with RoCE."""
    nics = [nic("eth0", f"10.0.0.{number}/24")]
    nics += [nic(f"rail{rail}", f"10.1.{rail}.{number}/24") for rail in range(rails)]
    found = node(f"n{number}", *nics, gpus=(gpu(0),))
    inventory = msgspec.structs.replace(found.inventory, rdma_ports=ports)
    return msgspec.structs.replace(found, inventory=inventory)


def placed(*nodes: NodeInfo, gpus: tuple[int, ...] = (0,)) -> tuple[Placement, ...]:
    wanted = [Participant(node=one.name, gpus=gpus, interface="eth0") for one in nodes]
    return arrange(wanted, nodes)


def test_every_active_rail_is_used_also_without_an_address_of_its_own() -> None:
    rails = [infiniband(f"mlx5_{rail}") for rail in range(8)]
    down = infiniband("mlx5_8", state="DOWN")
    first, second = placed(machine(1, *rails, down), machine(2, *rails[:4]))
    assert first.rdma_devices == tuple(f"mlx5_{rail}:1" for rail in range(8))
    assert second.rdma_devices == tuple(f"mlx5_{rail}:1" for rail in range(4))
    environment = network_environment(second)
    assert environment["NCCL_IB_HCA"] == "=mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1"
    assert not {"NCCL_IB_DISABLE", "NCCL_IB_GID_INDEX"} & set(environment)


@pytest.mark.parametrize(
    ("ports", "reason"),
    [
        ((), "no InfiniBand adapter"),
        ((infiniband("mlx5_0", state="DOWN"),), "mlx5_0 port 1 is DOWN"),
        ((infiniband("mlx5_0", state="INIT"),), "mlx5_0 port 1 is INIT"),
        ((infiniband("mlx5_0", obstacle="has no uverbs0"),), "mlx5_0 port 1 has no uverbs0"),
    ],
)
def test_one_node_without_infiniband_keeps_all_from_it_and_is_named(
    ports: tuple[RdmaPort, ...], reason: str
) -> None:
    nodes = (machine(1, infiniband("mlx5_0")), machine(2, *ports))
    places = placed(*nodes)
    assert [place.rdma_devices for place in places] == [(), ()]
    assert {network_environment(place)["NCCL_IB_DISABLE"] for place in places} == {"1"}
    note = rdma_note(nodes, places, {})
    assert note is not None
    assert note.kind == Kind.SLOW_LINK
    assert says("n2", note.cause)
    assert says(reason, note.cause)
    assert rdma_note(nodes, places, {"NCCL_IB_DISABLE": "1"}) is None


def test_infiniband_in_different_subnets_is_not_shared() -> None:
    other = infiniband("mlx5_0", subnet="fec0:0000:0000:0000")
    nodes = (machine(1, infiniband("mlx5_0")), machine(2, other))
    places = placed(*nodes)
    assert [place.rdma_devices for place in places] == [(), ()]
    found = unused_rdma(places, nodes)
    assert found is not None
    assert (found.link, found.node) == ("InfiniBand", None)


def rail_pair(index: int) -> tuple[NodeInfo, NodeInfo]:
    """Two nodes with two rails of RoCE, and the second with an adapter of another network."""
    first, second = (
        [roce(f"mlx5_{rail}", (index, f"10.1.{rail}.{number}")) for rail in range(2)]
        for number in (1, 2)
    )
    storage = roce("mlx5_9", (3, "10.1.2.2"))
    return machine(1, *first, rails=2), machine(2, *second, storage, rails=3)


def test_roce_is_used_on_the_subnets_that_all_share() -> None:
    places = placed(*rail_pair(3))
    assert [place.rdma_devices for place in places] == [("mlx5_0:1", "mlx5_1:1")] * 2
    assert [place.rdma_gid_index for place in places] == [None, None], "NCCL finds it itself"


def test_a_gid_that_nccl_would_not_choose_is_named_per_node() -> None:
    behind_vlan = roce("mlx5_0", (3, "192.168.7.1"), (5, "10.1.0.1"))
    nodes = (machine(1, behind_vlan, rails=1), machine(2, roce("mlx5_0", (3, "10.1.0.2")), rails=1))
    first, second = placed(*nodes)
    assert (first.rdma_gid_index, second.rdma_gid_index) == (5, None)
    assert network_environment(first)["NCCL_IB_GID_INDEX"] == "5"
    assert "NCCL_IB_GID_INDEX" not in network_environment(second)


def test_ports_that_need_different_gids_are_not_used() -> None:
    ports = [
        roce("mlx5_0", (3, "192.168.7.1"), (5, "10.1.0.1")),
        roce("mlx5_1", (3, "10.1.1.1")),
    ]
    nodes = (machine(1, *ports, rails=2), rail_pair(3)[1])
    places = placed(*nodes)
    assert [place.rdma_devices for place in places] == [(), ()]
    found = unused_rdma(places, nodes)
    assert found is not None
    assert (found.link, found.node) == ("RoCE", "n1")


def test_roce_that_only_some_network_cards_can_do_is_not_worth_a_word() -> None:
    nodes = (machine(1, roce("mlx5_0", (3, "10.1.0.1")), rails=1), machine(2, rails=1))
    assert unused_rdma(placed(*nodes), nodes) is None
    unplugged = (machine(1, infiniband("mlx5_0", state="DOWN")), machine(2))
    assert unused_rdma(placed(*unplugged), unplugged) is None


def test_roce_without_an_address_is_named_where_all_could() -> None:
    nodes = (machine(1, roce("mlx5_0", (3, "10.1.0.1")), rails=1), machine(2, roce("mlx5_0")))
    places = placed(*nodes)
    assert [place.rdma_devices for place in places] == [(), ()]
    found = unused_rdma(places, nodes)
    assert found is not None
    assert (found.link, found.node) == ("RoCE", "n2")


def test_ranks_without_gpus_or_on_one_node_need_none() -> None:
    nodes = (machine(1, infiniband("mlx5_0")), machine(2))
    assert unused_rdma(placed(*nodes, gpus=()), nodes) is None
    both = (machine(1, infiniband("mlx5_0")), machine(2, infiniband("mlx5_0")))
    assert [place.rdma_devices for place in placed(*both, gpus=())] == [(), ()]
    alone = arrange([Participant(node="n1", gpus=(0,))], nodes[:1])
    assert alone[0].rdma_devices == ()
    assert unused_rdma(alone, nodes[:1]) is None


@pytest.mark.parametrize("name", ["NCCL_IB_HCA", "NCCL_IB_DISABLE", "NCCL_NET", "NCCL_NET_PLUGIN"])
def test_what_a_job_decides_itself_is_left_to_it(name: str) -> None:
    for place in placed(machine(1), machine(2)):
        assert "NCCL_IB_DISABLE" in network_environment(place)
        assert not any(one.startswith("NCCL_IB") for one in network_environment(place, {name: ""}))
