"""Ends of trials: those of a job, and for nodes that share nothing with all, those of a pair."""

from __future__ import annotations

from jupyter_mntrain.model.records.node import NodeInfo
from jupyter_mntrain.plan.networks.trial_ends import trial_ends
from tests.standin.nodes import docker0, nic, node


def machine(name: str, *addresses: str) -> NodeInfo:
    nics = [nic(f"eth{at}", address) for at, address in enumerate(addresses)]
    return node(name, *nics, docker0())


def ways(nodes: list[NodeInfo], *wanted: str | None) -> list[tuple[str, str, str, str]]:
    found = trial_ends(nodes, wanted or (None,) * len(nodes))
    return [
        (nodes[one.sender].name, nodes[one.receiver].name, one.source, one.address) for one in found
    ]


def test_every_ordered_pair_on_the_network_that_all_share() -> None:
    nodes = [machine("a", "10.0.0.1/24"), machine("b", "10.0.0.2/24"), machine("c", "10.0.0.3/24")]
    assert len(ways(nodes)) == 6
    assert ways(nodes)[0] == ("a", "b", "10.0.0.1", "10.0.0.2")


def test_the_named_interface_is_tried() -> None:
    nodes = [
        machine("a", "10.0.0.1/24", "10.0.1.1/24"),
        machine("b", "10.0.0.2/24", "10.0.1.2/24"),
    ]
    assert ways(nodes, "eth1", "eth1")[0] == ("a", "b", "10.0.1.1", "10.0.1.2")


def test_two_that_share_a_network_are_tried_if_not_all_share_one() -> None:
    nodes = [
        machine("a", "10.0.0.1/24"),
        machine("b", "10.0.0.2/24", "10.0.1.2/24"),
        machine("c", "10.0.1.3/24"),
    ]
    assert ways(nodes) == [
        ("a", "b", "10.0.0.1", "10.0.0.2"),
        ("b", "a", "10.0.0.2", "10.0.0.1"),
        ("b", "c", "10.0.1.2", "10.0.1.3"),
        ("c", "b", "10.0.1.3", "10.0.1.2"),
    ]


def test_one_node_has_no_ways() -> None:
    assert ways([machine("a", "10.0.0.1/24")]) == []
