"""Outdated measurements: what changes at either end, and nothing else, puts one out of date."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from jupyter_mntrain.model.records.node import Capacity, Interface, LinkMeasurement, NodeInfo
from jupyter_mntrain.plan.interfaces import carries
from jupyter_mntrain.plan.measured_speeds import link_speeds
from jupyter_mntrain.plan.networks.outdated import (
    VALID_S,
    known_links,
    link_end,
    marked_at_receivers,
    marked_at_sender,
    old,
    with_measured,
)
from tests.standin.nodes import nic, node
from tests.wording import says

CHANGES = [
    ({"mac": "other"}, "another card"),
    ({"mtu": 9000}, "MTU"),
    ({"speed_mbit_per_s": 100}, "speed"),
    ({"came_up": 4}, "was down"),
]


def eth1(last: int, **fields: Any) -> Interface:
    basis = {"mac": f"mac{last}", "mtu": 1500, "speed_mbit_per_s": 1000, "came_up": 3}
    return nic("eth1", f"10.0.0.{last}/24", **(basis | fields))


def link(one: Interface, other: Interface, **fields: Any) -> LinkMeasurement:
    capacity = Capacity(1e8, "measured", time_s=1000.0, condition="alone")
    basis = {"sender": "a", "receiver": "b", "interface": "eth1", "address": "10.0.0.2"}
    ends = (link_end(one), link_end(other))
    return LinkMeasurement(**(basis | {"capacity": capacity, "ends": ends} | fields))


def with_links(interface: Interface, *links: LinkMeasurement) -> Interface:
    return msgspec.structs.replace(interface, links=links)


def seen(sender: Interface, receiver: Interface) -> str:
    """What two nodes say of a link that was measured before they changed."""
    measured = with_links(sender, link(eth1(1), eth1(2)))
    marked = marked_at_receivers([node("a", marked_at_sender(measured)), node("b", receiver)])
    return marked[0].inventory.interfaces[0].links[0].outdated


def test_nothing_changed() -> None:
    assert seen(eth1(1), eth1(2)) == ""
    unknown = {"mac": None, "mtu": None, "speed_mbit_per_s": None, "came_up": None}
    assert seen(eth1(1, **unknown), eth1(2, **unknown)) == ""


@pytest.mark.parametrize(("change", "words"), CHANGES)
def test_a_change_at_either_end(change: dict[str, Any], words: str) -> None:
    assert says(words, seen(eth1(1, **change), eth1(2)))
    assert says("b: eth1", seen(eth1(1), eth1(2, **change)))
    assert says(words, seen(eth1(1), eth1(2, **change)))


def test_an_address_that_moved() -> None:
    moved = msgspec.structs.replace(eth1(1), addresses=("10.0.0.7/24",))
    assert says("addresses", seen(moved, eth1(2)))
    moved = msgspec.structs.replace(eth1(2), addresses=("10.0.0.8/24",))
    assert says("addresses", seen(eth1(1), moved)), "the same card"
    moved = msgspec.structs.replace(moved, mac="other")
    assert says("no longer has 10.0.0.2", seen(eth1(1), moved))


def test_a_receiver_that_is_not_there_changes_nothing() -> None:
    [alone] = marked_at_receivers([node("a", with_links(eth1(1), link(eth1(1), eth1(2))))])
    assert not alone.inventory.interfaces[0].links[0].outdated


def test_an_older_agents_measurement_is_never_outdated() -> None:
    old = with_links(eth1(1, mtu=9000), link(eth1(1), eth1(2), ends=None))
    assert not marked_at_sender(old).links[0].outdated


def test_what_is_outdated_chooses_and_predicts_nothing() -> None:
    measured = marked_at_sender(with_links(eth1(1, mtu=9000), link(eth1(1), eth1(2))))
    assert carries(measured, ["b"]) == 1000e6 / 8, "as it calls itself"
    nodes: list[NodeInfo] = [node("a", measured), node("b", eth1(2))]
    assert not link_speeds(nodes, [measured, eth1(2)])[0, 1].is_measured
    fresh = with_links(eth1(1), link(eth1(1), eth1(2)))
    nodes = [node("a", fresh), node("b", eth1(2))]
    assert link_speeds(nodes, [fresh, eth1(2)])[0, 1].is_measured
    nodes = [node("a", fresh), node("b", eth1(2, mtu=9000))]
    assert not link_speeds(nodes, [fresh, eth1(2)])[0, 1].is_measured


def test_a_week_later_it_is_old_and_still_the_best_that_is_known() -> None:
    one = link(eth1(1), eth1(2))
    assert old(one, 1000.0 + VALID_S) == ""
    assert says("7 days", old(one, 1001.0 + VALID_S))
    assert known_links([one]) == (one,)


def test_a_new_measurement_takes_the_place_of_the_older_one_of_its_kind() -> None:
    one, many, other = link(eth1(1), eth1(2)), link(eth1(1), eth1(2), streams=4), eth1(1, came_up=4)
    nodes = [node("a", with_links(eth1(1), one, many)), node("b", eth1(2))]
    new = link(other, eth1(2))
    a, b = with_measured(nodes, [new])
    assert set(a.inventory.interfaces[0].links) == {new, many}
    assert b == nodes[1]


def test_of_one_and_several_connections_the_one_that_training_is_like() -> None:
    one, many = link(eth1(1), eth1(2)), link(eth1(1), eth1(2), streams=4)
    for links in ([one, many], [many, one]):
        assert known_links(links) == (one,)
        assert known_links(links, is_for_many_streams=True) == (many,)
    assert known_links([many]) == (many,)
    outdated = msgspec.structs.replace(one, outdated="eth1 was down")
    assert known_links([outdated, many]) == (many,)
