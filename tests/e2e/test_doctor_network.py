"""The doctor on a simulated network: it names what was done to it, and by which side."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.e2e.test_doctor import examined, found, run_on
from tests.netlab import DATA, Host, Lab, missing

pytestmark = [
    pytest.mark.netlab,
    pytest.mark.slow,
    pytest.mark.skipif(missing() is not None, reason=f"no lab: {missing()}"),
]


def bad_ways(report: dict[str, Any]) -> dict[tuple[str, str, str], str]:
    """Check, node and peer of what was found, and the node that is blamed."""
    return {
        (one["check"], one["node"], one.get("peer", "")): one["problem"]["node"]
        for one in report["findings"]
        if one["level"] != "passed"
    }


def test_nothing_is_said_of_a_healthy_network(lab: Lab, mntrain: str):
    report = examined(lab.host("node3"), mntrain)
    assert found(report) == []
    passed = {one["check"] for one in report["findings"]}
    assert passed >= {
        *("shared-network", "subnet-mask", "address-twice", "reachable", "port-range"),
        *("rendezvous-port", "path-mtu", "route", "resent-packets"),
    }


@pytest.mark.parametrize("target", ["DROP", "REJECT"])
def test_the_firewall_that_lets_nothing_in_is_named(lab: Lab, mntrain: str, target: str):
    host, peer = lab.host("node1"), lab.host("node2")
    with host.firewall("INPUT", "-i", DATA, "-s", peer.data_address, "-j", target):
        report = examined(lab.host("node3"), mntrain)
    # It drops the answers to its own connections, too.
    assert bad_ways(report) == {
        ("reachable", "node1", "node2"): "node1",
        ("reachable", "node2", "node1"): "node1",
    }


def test_the_firewall_that_lets_a_part_of_the_ports_in_is_named(lab: Lab, mntrain: str):
    rule = ("INPUT", "-i", DATA, "-p", "tcp", "--dport", "29000:40000", "--syn", "-j", "DROP")
    with lab.host("node1").firewall(*rule):
        report = examined(lab.host("node3"), mntrain)
    assert set(bad_ways(report).values()) == {"node1"}
    assert {node for _, node, _ in bad_ways(report)} == {"node2", "node3"}
    # By luck, the random port is one of those that are dropped.
    assert {check for check, _, _ in bad_ways(report)} <= {
        *("rendezvous-port", "port-range", "reachable")
    }


def test_the_firewall_that_lets_nothing_out_is_named(lab: Lab, mntrain: str):
    host, peer = lab.host("node1"), lab.host("node2")
    with host.firewall("OUTPUT", "-o", DATA, "-d", peer.data_address, "-j", "DROP"):
        report = examined(lab.host("node3"), mntrain)
    assert bad_ways(report) == {
        ("reachable", "node1", "node2"): "node1",
        ("reachable", "node2", "node1"): "node1",
    }


def test_jumbo_frames_that_the_switch_drops_are_named(lab: Lab, mntrain: str):
    hosts = [lab.host("node1"), lab.host("node2")]
    try:
        for host in hosts:
            # What a card of the lab has not divided yet would pass all the same.
            host.change_link(DATA, "mtu", "9000", "gso_max_segs", "1")
        report = examined(lab.host("node3"), mntrain)
    finally:
        for host in hosts:
            host.change_link(DATA, "mtu", "1500", "gso_max_segs", "65535")
    assert set(bad_ways(report)) == {
        ("path-mtu", "node1", "node2"),
        ("path-mtu", "node2", "node1"),
    }
    assert {one["said"][:14] for one in report["findings"][:2]} == {"1,500 of 9,000"}


def test_a_wrong_mask_is_named(lab: Lab, mntrain: str):
    host = lab.host("node1")
    with address(host, f"{host.data_address}/25", instead_of=f"{host.data_address}/24"):
        report = examined(lab.host("node3"), mntrain)
    # The mask is also why a job would leave that network unused.
    assert {one[:2] for one in bad_ways(report)} == {
        ("subnet-mask", "node1"),
        ("fast-network", "node1"),
    }


def test_an_address_that_two_nodes_have_is_named(lab: Lab, mntrain: str):
    with address(lab.host("node2"), f"{lab.host('node1').data_address}/24"):
        report = examined(lab.host("node3"), mntrain)
    assert bad_ways(report) == {("address-twice", "node2", "node1"): "node2"}


def test_packets_that_leave_over_another_network_are_named(lab: Lab, mntrain: str):
    host, target = lab.host("node1"), f"{lab.host('node2').data_address}/32"
    run_on(host, "ip", "route", "add", target, "via", lab.host("node2").management_address)
    try:
        report = examined(lab.host("node3"), mntrain)
    finally:
        run_on(host, "ip", "route", "del", target)
    assert bad_ways(report) == {("route", "node1", "node2"): "node1"}


@pytest.mark.parametrize("share", ["0.05", "0.01"])
def test_a_line_that_loses_packets_is_named(lab: Lab, mntrain: str, share: str):
    host = lab.host("node1")
    rule = ("INPUT", "-i", DATA, "-p", "tcp", "-m", "statistic", "--mode", "random")
    with host.firewall(*rule, "--probability", share, "-j", "DROP"):
        report = examined(lab.host("node3"), mntrain)
    assert set(bad_ways(report)) == {
        ("resent-packets", "node2", "node1"),
        ("resent-packets", "node3", "node1"),
    }


@contextmanager
def address(host: Host, new: str, instead_of: str = "") -> Iterator[None]:
    """Another address on the data network while in the block."""
    if instead_of:
        run_on(host, "ip", "addr", "del", instead_of, "dev", DATA)
    run_on(host, "ip", "addr", "add", new, "dev", DATA)
    try:
        yield
    finally:
        run_on(host, "ip", "addr", "del", new, "dev", DATA)
        if instead_of:
            run_on(host, "ip", "addr", "add", instead_of, "dev", DATA)
