"""Unused networks: a faster network that one node's settings keep from being used."""

from __future__ import annotations

import pytest

from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.node import Interface
from jupyter_mntrain.plan.arrange import arrange
from jupyter_mntrain.plan.members import choose_participants
from jupyter_mntrain.plan.networks.unused_networks import unused_network
from jupyter_mntrain.workload.slow_links import slow_link_note
from tests.standin.nodes import nic, node
from tests.wording import says

SLOW = {"speed_mbit_per_s": 100}
FAST = {"speed_mbit_per_s": 1000}


def pair(theirs: Interface):
    """Two nodes that share eth0; the second one's eth1 is what matters."""
    first = nic("eth1", "10.77.2.1/24", **FAST)
    return (
        node("a", nic("eth0", "10.1.0.1/24", **SLOW), first),
        node("b", nic("eth0", "10.1.0.2/24", **SLOW), theirs),
    )


@pytest.mark.parametrize(
    ("theirs", "reason"),
    [
        (nic("eth1", "10.77.2.2/16", **FAST), "eth1 has 10.77.2.2/16, the others are in"),
        (nic("eth1", "10.77.3.2/24", **FAST), "eth1 has 10.77.3.2/24, the others are in"),
        (nic("eth1", **FAST), "eth1 has no IPv4 address"),
        (nic("eth1", "10.77.2.2/24", is_up=False, **FAST), "eth1 is down"),
        (nic("eth1", "10.77.2.1/24", **FAST), "eth1 has a's address 10.77.2.1"),
    ],
)
def test_the_node_that_keeps_a_faster_network_from_being_used_is_named(theirs, reason):
    nodes = pair(theirs)
    found = unused_network(nodes, ["eth0", "eth0"])
    assert found is not None
    assert (found.name, found.node) == ("eth1", "b")
    assert says(reason, found.reason)
    assert found.network == "10.77.2.0/24"
    placements = arrange(choose_participants([], nodes), nodes)
    assert {place.interface for place in placements} == {"eth0"}
    note = slow_link_note(nodes, placements)
    assert note is not None
    assert (note.kind, note.node) == (Kind.SLOW_LINK, "b")
    assert says("the ranks use eth0", note.cause)
    assert says("10.77.2.0/24", note.fix)


@pytest.mark.parametrize(
    "theirs",
    [
        nic("eth1", "10.77.2.2/24", **FAST),  # it works
        nic("eth2", "10.99.0.2/24", **FAST),  # b simply has no eth1
    ],
)
def test_what_is_as_it_should_be_is_not_mentioned(theirs):
    assert unused_network(pair(theirs), ["eth0", "eth0"]) is None


def test_a_slower_or_unknown_network_is_not_worth_a_word():
    first, second = pair(nic("eth1", **FAST))
    assert unused_network((first, second), ["eth1", "eth1"]) is None
    unknown = node("a", nic("eth0", "10.1.0.1/24"), nic("eth1", "10.77.2.1/24", **FAST))
    assert unused_network((unknown, second), ["eth0", "eth0"]) is None
