"""The doctor on a simulated cluster: silent on a healthy one, and right about faults made there."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import CLUSTER
from tests.netlab import DATA, Host, Lab, missing
from tests.netlab.terminal import type_on

pytestmark = [
    pytest.mark.netlab,
    pytest.mark.slow,
    pytest.mark.skipif(missing() is not None, reason=f"no lab: {missing()}"),
]

INTERPRETERS_S = 600.0
"""For interpreters to tell what they load: at the lowest priority, whatever else runs here."""


def examined(driver: Host, mntrain: str, *nodes: str) -> dict[str, Any]:
    """The doctor's report, whatever it found, once interpreters have told what they load."""
    deadline = time.monotonic() + INTERPRETERS_S
    while True:
        done = type_on(driver, ["--cluster", CLUSTER, "--json", "doctor", *nodes])
        assert done.returncode in (0, 1), done.stderr
        report = json.loads(done.stdout)
        is_known = not any(one["level"] == "unknown" for one in report["findings"])
        if is_known or time.monotonic() > deadline:
            return report


def found(report: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["check"], one["node"]) for one in report["findings"] if one["level"] != "passed"]


def test_nothing_is_said_of_a_healthy_cluster_on_a_healthy_network(lab: Lab, mntrain: str):
    report = examined(lab.host("node3"), mntrain)
    assert sorted(report["nodes"]) == ["node1", "node2", "node3"]
    assert found(report) == []
    passed = {one["check"] for one in report["findings"]}
    assert passed >= {
        *("shared-network", "subnet-mask", "address-twice", "reachable", "port-range"),
        *("rendezvous-port", "path-mtu", "route", "resent-packets"),
    }


def test_a_name_server_that_does_not_answer_and_a_disk_that_fills_are_named(lab: Lab, mntrain: str):
    host, other = lab.host("node1"), lab.host("node2")
    names = host.run(["cat", "/etc/resolv.conf"]).stdout
    hosts = host.run(["cat", "/etc/hosts"]).stdout
    # The hosts share this machine's disks, except for what is mounted on one of them.
    done = other.run(["find", str(other.home), "-type", "d", "-name", "jobs"])
    runs = f"{Path(done.stdout.split()[0]).parent}/runs"
    run_on(other, "mkdir", "-p", runs)
    run_on(other, "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", runs)
    try:
        write(host, "/etc/resolv.conf", "nameserver 10.77.1.77\n")
        write(host, "/etc/hosts", "127.0.0.1 localhost\n10.77.1.1 node1\n")
        report = examined(lab.host("node3"), mntrain)
    finally:
        write(host, "/etc/resolv.conf", names)
        write(host, "/etc/hosts", hosts)
        run_on(other, "umount", runs)
    assert set(found(report)) == {("disk-space", "node2"), ("reverse-dns", "node1")}
    levels = {(one["check"], one["node"]): one["level"] for one in report["findings"]}
    assert levels["disk-space", "node2"] == "stops"


# Networks: it names what was done to them, and by which side


def bad_ways(report: dict[str, Any]) -> dict[tuple[str, str, str], str]:
    """Check, node and peer of what was found, and the node that is blamed."""
    return {
        (one["check"], one["node"], one.get("peer", "")): one["problem"]["node"]
        for one in report["findings"]
        if one["level"] != "passed"
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


def test_a_line_that_loses_one_packet_of_a_hundred_is_named(lab: Lab, mntrain: str):
    host = lab.host("node1")
    rule = ("INPUT", "-i", DATA, "-p", "tcp", "-m", "statistic", "--mode", "random")
    with host.firewall(*rule, "--probability", "0.01", "-j", "DROP"):
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


def write(host: Host, path: str, text: str) -> None:
    subprocess.run(
        host.command(["tee", path]), input=text, text=True, check=True, stdout=subprocess.DEVNULL
    )


def run_on(host: Host, *words: str) -> None:
    done = host.run(list(words))
    assert done.returncode == 0, done.stderr
