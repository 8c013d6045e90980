"""Links to measure: every pair, every shared network, and of those the ones that are due."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.records.node import Capacity, Interface, LinkMeasurement, NodeInfo
from jupyter_mntrain.plan.networks.measuring import due, expected_s, links_between
from jupyter_mntrain.plan.networks.outdated import VALID_S, link_end
from tests.standin.nodes import docker0, nic, node
from tests.wording import wording


def machine(name: str, last: int, *more: Interface) -> NodeInfo:
    return node(name, nic("eth0", f"10.0.0.{last}/24"), *more, docker0())


def fast(last: int, network: int = 1, **fields: Any) -> Interface:
    return nic("eth1", f"10.0.{network}.{last}/24", **fields)


def named(nodes: list[NodeInfo], *wanted: str | None) -> list[tuple[str, str, str]]:
    found = links_between(nodes, wanted or (None,) * len(nodes))
    return [
        (nodes[link.pair[0]].name, nodes[link.pair[1]].name, link.interfaces[0].name)
        for link in found
    ]


def test_every_pair_on_every_network_that_the_two_share() -> None:
    nodes = [
        machine("a", 1, fast(1)),
        machine("b", 2, fast(2)),
        machine("c", 3, fast(3, network=9)),
    ]
    assert named(nodes) == [
        ("a", "b", "eth0"),
        ("a", "b", "eth1"),
        ("a", "c", "eth0"),
        ("b", "a", "eth0"),
        ("b", "a", "eth1"),
        ("b", "c", "eth0"),
        ("c", "a", "eth0"),
        ("c", "b", "eth0"),
    ]
    [_, link, *_] = links_between(nodes, (None, None, None))
    assert link.addresses == ("10.0.1.1", "10.0.1.2")


def test_a_network_that_is_down_or_has_no_own_addresses_is_left_out() -> None:
    nodes = [machine("a", 1, fast(1)), machine("b", 2, fast(2, is_up=False))]
    assert named(nodes) == [("a", "b", "eth0"), ("b", "a", "eth0")]
    nodes = [machine("a", 1, fast(1)), machine("b", 2, fast(1))]
    assert named(nodes) == [("a", "b", "eth0"), ("b", "a", "eth0")]


def test_named_interfaces_are_the_only_ones() -> None:
    nodes = [machine("a", 1, fast(1)), machine("b", 2, fast(2))]
    assert named(nodes, "eth1", "eth1") == [("a", "b", "eth1"), ("b", "a", "eth1")]
    with pytest.raises(SpecError):
        named(nodes, "eth7", "eth1")


def test_agents_of_one_machine_use_loopback() -> None:
    nodes = [node(name, agent=f"127.0.0.{last}:1", boot_id="one") for name, last in ("a1", "b2")]
    assert named(nodes) == [("a", "b", "lo"), ("b", "a", "lo")]


def test_two_nodes_without_a_network_are_refused() -> None:
    nodes = [machine("a", 1), machine("b", 2), node("c", fast(3))]
    with pytest.raises(SpecError, match=wording("no network is shared")):
        named(nodes)


def test_due_is_what_was_never_measured_has_changed_or_is_old() -> None:
    ends = [fast(1, mtu=1500), fast(2, mtu=1500)]

    def a(*, time_s: float = 1000.0, **now: Any) -> NodeInfo:
        link = LinkMeasurement(
            sender="a",
            receiver="b",
            interface="eth1",
            address="10.0.1.2",
            capacity=Capacity(1e8, "measured", time_s=time_s, condition="alone"),
            ends=(link_end(ends[0]), link_end(ends[1])),
            **now,
        )
        return node("a", msgspec.structs.replace(ends[0], links=(link,)))

    def pairs(one: NodeInfo, other: Interface, **how: bool) -> list[tuple[int, int]]:
        nodes = [one, node("b", other)]
        links = links_between(nodes, (None, None))
        return [link.pair for link in due(links, nodes, 2000.0, **how)]

    assert pairs(a(), ends[1]) == [(1, 0)], "b has measured nothing"
    assert pairs(a(), ends[1], is_renewal=True) == []
    for outdated in (
        (a(outdated="eth1 was down"), ends[1]),
        (a(), fast(2, mtu=9000)),
        (a(time_s=1999.0 - VALID_S), ends[1]),
    ):
        assert pairs(*outdated, is_renewal=True) == [(0, 1)]
    assert pairs(a(streams=4), ends[1]) == [(0, 1), (1, 0)], "one connection was never measured"


@pytest.mark.parametrize(
    ("mbit_per_s", "seconds"), [(None, 1.9), (1000, 1.9), (0.5, 4.1), (0.01, 10.9)]
)
def test_a_slow_link_is_expected_to_take_longer(mbit_per_s: float | None, seconds: float) -> None:
    known = ()
    if mbit_per_s is not None:
        rate = Capacity(mbit_per_s * 1e6 / 8, "measured", time_s=1.0, condition="alone")
        known = (LinkMeasurement("a", "b", "eth0", "10.0.0.2", rate),)
    sender = node("a", nic("eth0", "10.0.0.1/24", links=known))
    nodes = [sender, machine("b", 2)]
    [link, _] = links_between(nodes, (None, None))
    assert expected_s(link, nodes) == pytest.approx(seconds, abs=0.1)
