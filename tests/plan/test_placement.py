"""Ranks, addresses and devices of every participant."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_mntrain.model.records.job import Participant
from jupyter_mntrain.plan.interfaces import choose_interfaces
from jupyter_mntrain.plan.placement import kept_address, place
from tests.standin.nodes import gpu, nic, node


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8))
def test_ranks_run_on_from_node_to_node_without_gap_or_overlap(sizes: list[int]) -> None:
    participants = [Participant(node=f"n{i}", nproc=size) for i, size in enumerate(sizes)]
    nodes = [node(f"n{i}", nic("eth0", f"10.0.0.{i + 1}/24")) for i in range(len(sizes))]
    placements = place(participants, nodes, choose_interfaces(nodes, [None] * len(nodes)))
    assert [p.node_rank for p in placements] == list(range(len(sizes)))
    assert [rank for p in placements for rank in p.ranks] == list(range(sum(sizes)))
    assert all(one.ranks.stop == two.first_rank for one, two in pairwise(placements))
    assert [p.nproc for p in placements] == sizes


def test_the_one_and_two_layout() -> None:
    nodes = [
        node("a", nic("eth1", "10.77.2.1/24")),
        node("b", nic("eno2", "10.77.2.2/24"), gpus=(gpu(0), gpu(1))),
    ]
    participants = [Participant(node="a"), Participant(node="b", nproc=2, gpus=(1, 0))]
    first, second = place(participants, nodes, choose_interfaces(nodes, [None, None]))
    assert (first.first_rank, first.nproc, first.address) == (0, 1, "10.77.2.1")
    assert (second.first_rank, second.nproc, second.address) == (1, 2, "10.77.2.2")
    assert (first.interface, second.interface) == ("eth1", "eno2")
    assert second.gpus == (1, 0)
    assert first.agent == nodes[0].addresses
    assert (first.node, first.node_id) == ("a", "id-of-a")


def test_agents_on_loopback_are_placed_on_the_addresses_they_listen_on() -> None:
    nodes = [
        node(n, agent=f"{a}:8765", boot_id="one")
        for n, a in (("a", "127.0.0.2"), ("b", "127.0.0.3"))
    ]
    participants = [Participant(node="a"), Participant(node="b")]
    places = place(participants, nodes, choose_interfaces(nodes, [None, None]))
    assert [(p.interface, p.address) for p in places] == [("lo", "127.0.0.2"), ("lo", "127.0.0.3")]


def test_a_single_node_needs_nothing_but_itself() -> None:
    alone = [node("a", nic("eth0", "10.0.0.1/24"))]
    (only,) = place([Participant(node="a", nproc=3)], alone, choose_interfaces(alone, [None]))
    assert (only.interface, only.address, list(only.ranks)) == ("lo", "127.0.0.1", [0, 1, 2])


def test_of_several_addresses_the_one_on_the_shared_subnet() -> None:
    nodes = [
        node("a", nic("eth0", "192.168.5.1/24", "10.0.0.1/24")),
        node("b", nic("eth0", "10.0.0.2/24", "192.168.6.1/24")),
    ]
    places = place(
        [Participant(node="a"), Participant(node="b")], nodes, choose_interfaces(nodes, [None] * 2)
    )
    assert [p.address for p in places] == ["10.0.0.1", "10.0.0.2"]


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("192.168.5.1", "192.168.5.1"),
        ("10.0.0.9", "10.0.0.1"),  # the network gave it another one meanwhile
        ("172.16.0.1", "192.168.5.1"),
        (None, "192.168.5.1"),
        ("x", "192.168.5.1"),
    ],
)
def test_further_attempts_keep_the_address_of_the_first(before: str | None, now: str) -> None:
    assert kept_address(nic("eth0", "192.168.5.1/24", "10.0.0.1/24"), before) == now
