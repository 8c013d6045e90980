"""Rank order: neighbors with the best links, a head near to all, and else the order given."""

from __future__ import annotations

from itertools import pairwise, permutations

import msgspec
import pytest

from jupyter_mntrain.model.records.node import Capacity, Latency, LinkMeasurement, NodeInfo
from jupyter_mntrain.model.records.plan import LinkSpeed
from jupyter_mntrain.plan.measured_speeds import Pair
from jupyter_mntrain.plan.members import choose_participants, parse_members
from jupyter_mntrain.plan.networks.rank_order import rank_order
from tests.standin.nodes import nic, node

FAST, SLOW = 1e8, 1e7


def speeds(
    count: int, fast: set[Pair], latencies: dict[int, float] | None = None
) -> dict[Pair, LinkSpeed]:
    """Fast links both paths between some pairs, slow ones between others.

    Args:
        latencies: of a participant's links, which add up.
    """
    later = latencies or {}
    return {
        pair: LinkSpeed(
            FAST if {pair, pair[::-1]} & fast else SLOW,
            1e-4 + sum(later.get(one, 0.0) for one in pair),
            is_measured=True,
        )
        for pair in permutations(range(count), 2)
    }


def test_equal_links_keep_the_order_that_was_given() -> None:
    for count in (0, 1, 2, 4, 8):
        every = set(permutations(range(count), 2))
        assert rank_order(count, speeds(count, every)) == tuple(range(count))


def test_neighbors_get_the_fast_links() -> None:
    assert rank_order(3, speeds(3, {(0, 2), (2, 1)})) == (0, 2, 1)
    assert rank_order(4, speeds(4, {(0, 2), (2, 3), (3, 1)})) == (0, 2, 3, 1)


def test_a_link_is_as_fast_as_its_slower_direction() -> None:
    found = speeds(3, set(permutations(range(3), 2)))
    found[1, 0] = LinkSpeed(SLOW, 1e-4)
    assert rank_order(3, found) == (0, 2, 1)


def test_of_equal_links_the_head_is_nearest_to_the_others() -> None:
    every = set(permutations(range(3), 2))
    assert rank_order(3, speeds(3, every, {0: 1e-3}))[0] == 1
    assert rank_order(3, speeds(3, every, {0: 1e-3, 1: 1e-3}))[0] == 2
    assert rank_order(3, speeds(3, every, {0: 1e-6})) == (0, 1, 2), "no more than a repeat is off"
    assert rank_order(3, speeds(3, {(0, 1), (1, 2)}, {0: 1e-3})) == (2, 1, 0), "links come first"


@pytest.mark.parametrize("count", [7, 16])
def test_many_participants_are_chained_by_their_fastest_links(count: int) -> None:
    chain = [*range(0, count, 2), *range(1, count, 2)]
    order = rank_order(count, speeds(count, set(pairwise(chain))))
    assert [*order] in (chain, chain[::-1])


def measured(name: str, others: dict[str, float]) -> NodeInfo:
    """A node that has measured its links, in bytes per second."""
    last = 1 + "abc".index(name)
    links = tuple(
        LinkMeasurement(
            name,
            other,
            "eth1",
            f"10.0.0.{1 + 'abc'.index(other)}",
            Capacity(rate, "measured", condition="alone"),
            Latency(1e-4, 2e-4, 200),
        )
        for other, rate in others.items()
    )
    return node(name, nic("eth1", f"10.0.0.{last}/24", links=links))


def names(nodes: list[NodeInfo], *members: str) -> list[str]:
    return [one.node for one in choose_participants(parse_members(members), nodes)]


def test_participants_that_nobody_ordered_are_ordered_by_their_links() -> None:
    nodes = [
        measured("a", {"b": SLOW, "c": FAST}),
        measured("b", {"a": SLOW, "c": FAST}),
        measured("c", {"a": FAST, "b": FAST}),
    ]
    assert names(nodes) == ["a", "c", "b"]
    assert names(nodes, "a:1", "b:1", "c:1") == ["a", "b", "c"], "as a person said"
    [own] = [one for one in nodes[2].inventory.interfaces if one.name == "eth1"]
    unmeasured = msgspec.structs.replace(
        nodes[2].inventory, interfaces=(msgspec.structs.replace(own, links=own.links[:1]),)
    )
    nodes[2] = msgspec.structs.replace(nodes[2], inventory=unmeasured)
    assert names(nodes) == ["a", "b", "c"], "not all links were measured"
