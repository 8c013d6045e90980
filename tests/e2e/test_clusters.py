"""Several clusters on one network, in simulated hosts: they do not affect each other."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import invite, join, ours, start, token_file, up
from tests.netlab import DATA, MANAGEMENT, Host, Lab, missing, own_lab
from tests.netlab.terminal import type_on
from tests.waiting import until
from tests.wording import says

pytestmark = [pytest.mark.netlab, pytest.mark.slow]


@pytest.fixture(scope="module")
def lab(mntrain: str) -> Iterator[Lab]:
    """node1 and node2 in a cluster that node1 made, node3 in one of the same name that node3 made,
    node4 in one of another name."""
    why_not = missing()
    if why_not is not None:
        pytest.skip(f"simulated cluster: {why_not}")
    with own_lab(4) as made:
        first, second, third, fourth = made.hosts
        token = invite(first, mntrain, "--uses", "2")
        join(first, mntrain, token)
        # The notebook machine takes no connection: it is who dials.
        with first.firewall("INPUT", "-p", "tcp", "--syn", "!", "-i", "lo", "-j", "DROP"):
            join(second, mntrain, token)
        join(third, mntrain, invite(third, mntrain))
        join(fourth, mntrain, invite(fourth, mntrain, cluster="other"))
        yield made


def state_of(host: Host) -> Path:
    return host.home / ".local" / "state" / "mntrain" / "nodes" / host.name


def audit_of(host: Host) -> str:
    path = state_of(host) / "audit.log"
    return path.read_text() if path.exists() else ""


def shown(host: Host, mntrain: str, *words: str, cluster: str = "lab") -> str:
    del mntrain  # the host's terminal has it
    done = type_on(host, ["--cluster", cluster, *words])
    return " ".join((done.stdout + done.stderr).split())


def test_each_driver_sees_the_nodes_of_its_own_cluster(lab: Lab, mntrain: str) -> None:
    first, _, third, fourth = lab.hosts
    until(lambda: up(first, mntrain) == ["node1", "node2"], "both nodes of the first")
    until(lambda: up(third, mntrain) == ["node3"], "the node of its namesake")
    until(lambda: up(fourth, mntrain, cluster="other") == ["node4"], "the node of the other")
    for host, cluster, own in (
        (first, "lab", {"node1", "node2"}),
        (third, "lab", {"node3"}),
        (fourth, "other", {"node4"}),
    ):
        assert {node["node"] for node in ours(host, mntrain, "nodes", cluster=cluster)} == own
    text = shown(first, mntrain, "nodes")
    told = "Also announced here: node3 of another cluster called lab, node4 of other."
    assert told in text


def test_who_names_another_cluster_s_node_is_told_whose_it_is(lab: Lab, mntrain: str) -> None:
    first, _, third, fourth = lab.hosts
    said = shown(first, mntrain, "add", third.data_address)
    assert says("a different cluster that is also named 'lab'", said)
    said = shown(first, mntrain, "add", fourth.data_address)
    assert "'other'" in said
    assert says("it belongs to cluster 'other', not 'lab'", said)
    for host in (third, fourth):
        text = shown(
            first,
            mntrain,
            "--agent",
            f"{host.data_address}:8765",
            "launch",
            "x.py",
            "--member",
            host.name,
        )
        assert says("Fix:", text)
        (line,) = map(json.loads, audit_of(host).splitlines())
        assert line["what"] == "join", "nobody asked it for anything"


def test_a_copied_state_directory_is_named_and_not_merged(lab: Lab, mntrain: str) -> None:
    first, second, third, _ = lab.hosts
    until(lambda: up(first, mntrain) == ["node1", "node2"], "both nodes")
    copy = third.home / "copy"
    shutil.copytree(state_of(second), copy, ignore=shutil.ignore_patterns("lock"))
    log = third.home / "copy.log"
    process = start(
        third, [mntrain, "agent", "run", "--state-dir", str(copy), "--port", "8799"], log
    )
    try:
        until(lambda: "listens on" in log.read_text(), f"{log} to listen")

        def conflict() -> list[dict[str, Any]]:
            return [n for n in ours(first, mntrain, "nodes") if n.get("is_conflict")]

        both: list[dict[str, Any]] = []

        def shows_both() -> bool:
            both[:] = conflict()
            return len(both) == 2

        until(shows_both, "both to be shown")
        one, other = both
        assert {one["info"]["inventory"]["hostname"], other["info"]["inventory"]["hostname"]} == {
            "node2",
            "node3",
        }
        for node in (one, other):
            assert node["problem"]["kind"] == "node-id-twice"
            assert node["problem"]["fix"]
        said = shown(first, mntrain, "launch", "x.py", "--member", "node2:1")
        assert says("Fix:", said)
    finally:
        process.terminate()
        process.wait(20)
    first.run([mntrain, "--cluster", "lab", "forget", f"{third.data_address}:8799"])


def test_hosts_that_share_a_home_are_two_nodes_or_one_is_refused(lab: Lab, mntrain: str) -> None:
    """As with a home on NFS: the same files, another host name."""
    second, third = lab.host("node2"), lab.host("node3")
    shared = {"HOME": str(second.home)}
    words = ["env", f"HOME={second.home}", mntrain, "agent", "run"]
    done = third.run(words, environment=shared)
    assert done.returncode == 6
    assert says("this node is not a member of a cluster yet", done.stderr)
    done = third.run([*words, "--state-dir", str(state_of(second))])
    assert done.returncode != 0
    assert says("another agent", done.stderr)
    assert says("if machines share a home", done.stderr)


def test_a_driver_that_hears_no_multicast_says_so_and_reaches_nodes_by_address(
    lab: Lab, mntrain: str
) -> None:
    first, second = lab.host("node1"), lab.host("node2")
    with first.firewall("INPUT", "-p", "udp", "--dport", "5353", "-j", "DROP"):
        text = shown(first, mntrain, "forget", "node2")
        text = shown(first, mntrain, "nodes")
        assert says("no multicast is received on", text)
        assert says("not even this machine", text)
        assert first.data_address in text
        assert "node2" in shown(first, mntrain, "add", second.data_address)
    text = shown(first, mntrain, "nodes")
    assert "no multicast" not in text


@pytest.mark.parametrize(
    ("rule", "kind"),
    [(("-j", "DROP"), "no-answer"), (("-j", "REJECT"), "connection-refused")],
)
def test_a_node_behind_a_firewall_is_told_from_one_that_is_off(
    lab: Lab, mntrain: str, rule: tuple[str, ...], kind: str
) -> None:
    first, second = lab.host("node1"), lab.host("node2")
    until(lambda: up(first, mntrain) == ["node1", "node2"], "both nodes")
    refuse = ("--reject-with", "tcp-reset") if "REJECT" in rule else ()
    with second.firewall("INPUT", "-p", "tcp", "--dport", "8765", *rule, *refuse):
        (node,) = (n for n in ours(first, mntrain, "nodes") if n["node"] == "node2")
        assert node["problem"]["kind"] == kind, json.dumps(node)
    until(lambda: up(first, mntrain) == ["node1", "node2"], "both nodes again")


FORWARD = """
import socket, sys, threading
def pump(source, target):
    while block := source.recv(65536):
        target.sendall(block)
    target.shutdown(socket.SHUT_WR)
server = socket.create_server(("", int(sys.argv[1])))
while True:
    outer, _ = server.accept()
    inner = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
    for pair in ((outer, inner), (inner, outer)):
        threading.Thread(target=pump, args=pair, daemon=True).start()
"""


def test_a_node_in_a_container_is_found_where_it_says_it_is(lab: Lab, mntrain: str) -> None:
    """Its own port is not the one that others reach it by, as with a port that docker publishes."""
    first, host = lab.host("node1"), lab.host("node3")
    reached = f"{host.data_address}:9000"
    forwarder = start(
        host, [sys.executable, "-c", FORWARD, "9000", "8790"], host.home / "forward.log"
    )
    token = invite(first, mntrain)
    words = [mntrain, "agent", "join", "--token-file", token_file(host, token)]
    words += ["--name", "boxed", "--port", "8790"]
    words += ["--state-dir", str(host.home / "boxed"), "--address", reached]
    agent = start(host, words, host.home / "boxed.log")
    try:
        until(lambda: "boxed" in up(first, mntrain), "the container to be up")
        (node,) = (n for n in ours(first, mntrain, "nodes") if n["node"] == "boxed")
        assert node["address"] == reached
        assert node["info"]["addresses"] == [reached]
    finally:
        for process in (agent, forwarder):
            process.terminate()
            process.wait(20)
    first.run([mntrain, "--cluster", "lab", "forget", "boxed"])


def test_an_agent_without_any_network_says_that_nobody_can_reach_it(lab: Lab, mntrain: str) -> None:
    host = lab.host("node4")
    copy, log = host.home / "copy", host.home / "copy.log"
    shutil.copytree(state_of(host), copy, ignore=shutil.ignore_patterns("lock"))
    for link in (DATA, MANAGEMENT):
        host.set_link(link, is_up=False)
    agent = start(host, [mntrain, "agent", "run", "--state-dir", str(copy), "--port", "8791"], log)
    try:
        until(lambda: "listens on 127.0.0.1:8791" in log.read_text(), f"{log} to listen")
        until(lambda: says("no network interface is up", log.read_text()), f"{log} to warn")
        assert says("--address", log.read_text())
    finally:
        agent.terminate()
        agent.wait(20)
        for link in (DATA, MANAGEMENT):
            host.set_link(link, is_up=True)


def test_a_card_called_docker0_or_of_its_range_is_judged_by_what_it_is(
    lab: Lab, mntrain: str
) -> None:
    (node,) = (n for n in ours(lab.host("node1"), mntrain, "nodes") if n["node"] == "node1")
    kinds = {i["name"]: i["kind"] for i in node["info"]["inventory"]["interfaces"]}
    assert kinds[DATA] == kinds[MANAGEMENT] == "ethernet"
    assert kinds["docker0"] == "virtual"
