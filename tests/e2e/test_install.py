"""``install`` and ``upgrade`` through a real sshd on simulated hosts, from nothing to a job."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_mntrain.model.failure.kinds import Kind
from tests.e2e.conftest import ours
from tests.netlab import Host, Lab, missing, own_lab
from tests.netlab.sshd import (
    client,
    listens,
    missing_sshd,
    packages_without_ours,
    start_sshd,
    with_path,
)
from tests.netlab.terminal import type_on
from tests.waiting import until

pytestmark = [pytest.mark.netlab, pytest.mark.slow]

SECOND_PORT = 2222
BOTH = ("root@node1", f"root@node2:{SECOND_PORT}")
INSTALL = ("install", "--without-systemd")
SCRIPT = "import os, time\nprint('rank', os.environ['RANK'])\n"


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Two hosts with an sshd and a Python, and one that drives. None of them is a node."""
    why_not = missing() or missing_sshd()
    if why_not is not None:
        pytest.skip(f"simulated cluster: {why_not}")
    with own_lab(3) as made:
        first, second, driver = made.hosts
        packages = packages_without_ours(made.directory / "packages")
        start_sshd(first, packages)
        start_sshd(second, packages, port=SECOND_PORT)
        client(driver, [(first, 22), (second, SECOND_PORT)])
        until(lambda: listens(driver, "node1"), "the first sshd")
        until(lambda: listens(driver, "node2", SECOND_PORT), "the second sshd")
        yield made


@pytest.fixture
def do(lab: Lab, mntrain: str) -> Any:
    """A command on the driver: its exit code, and its data."""
    driver = lab.host("node3")

    def do(*words: str, cluster: str = "lab", **more: str) -> tuple[int, list[dict[str, Any]]]:
        line = ["--cluster", cluster, "--json", *words]
        environment = with_path(driver.home / "ssh") | more
        if more:  # settings, which are read when a program starts
            done = driver.run([mntrain, *line], timeout_s=240, environment=environment)
        else:
            done = type_on(driver, line, timeout_s=240, environment=environment)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)["hosts"]

    return do


def agent_pids(host: Host) -> set[int]:
    return {
        pid
        for pid in host.pids()
        if b"jupyter_mntrain.agent\0run" in Path(f"/proc/{pid}/cmdline").read_bytes()
    }


def test_every_refusal_names_the_host_and_changes_nothing(lab: Lab, do: Any) -> None:
    code, hosts = do("install", "stranger", "keyless", "node1:2299", "nobody.invalid", "10.77.1.2")
    kinds = {one["host"]: one["problem"]["kind"] for one in hosts}
    assert code == 3
    assert kinds == {
        "stranger": Kind.HOST_KEY,
        "keyless": Kind.NO_LOGIN,
        "node1:2299": Kind.CONNECTION_REFUSED,
        "nobody.invalid": Kind.UNREACHABLE,
        "10.77.1.2": Kind.CONNECTION_REFUSED,
    }
    assert all(one["problem"]["node"] == one["host"] for one in hosts)
    assert all(one["problem"]["fix"] for one in hosts)
    assert not (lab.host("node1").home / ".local").exists()


def test_two_hosts_become_nodes_and_a_blocked_port_is_named_and_repaired(
    lab: Lab, do: Any, mntrain: str
) -> None:
    first, second, driver = lab.hosts
    blocked = ("INPUT", "-p", "tcp", "--dport", "8765", "-j", "DROP")
    with second.firewall(*blocked):
        environment = ("--python", sys.executable)
        code, (two,) = do(*INSTALL, *environment, BOTH[1], MNTRAIN_INSTALL_JOIN_TIMEOUT_S="5")
    assert (code, two["problem"]["kind"]) == (3, Kind.PORT_BLOCKED), two
    code, (two,) = do(*INSTALL, *environment, BOTH[1])
    assert (code, two.get("node")) == (0, "node2"), two
    code, (one,) = do(*INSTALL, BOTH[0])
    assert (code, one.get("node")) == (0, "node1"), one
    assert (first.home / ".local/share/mntrain/env/bin/mntrain").exists()
    before = [agent_pids(host) for host in (first, second)]

    code, again = do(*INSTALL, *BOTH)
    assert code == 0, again
    assert [one.get("node") for one in again] == ["node1", "node2"]
    assert [one.get("changed", []) for one in again] == [[], []]
    assert [agent_pids(host) for host in (first, second)] == before, "running agents run on"

    script = driver.home / "hello.py"
    script.write_text(SCRIPT)
    members = ("--member", "node1:1", "--member", "node2:1")
    job = ours(driver, mntrain, "launch", str(script), *members, "--wait", timeout_s=120)
    assert job["state"] == "succeeded"


def test_a_node_of_another_cluster_is_refused(do: Any) -> None:
    code, (one,) = do("install", "--without-systemd", "node1", cluster="other")
    assert (code, one["problem"]["kind"]) == (3, Kind.WRONG_CLUSTER)


def test_an_upgrade_waits_for_no_job_and_restarts_the_agent(
    lab: Lab, do: Any, mntrain: str
) -> None:
    first, _, driver = lab.hosts
    site = next(first.home.glob(".local/share/mntrain/env/lib/python3*/site-packages"))
    (direct,) = site.glob("jupyter_mntrain-*.dist-info/direct_url.json")
    other = json.loads(direct.read_text()) | {"archive_info": {"hash": "sha256=0"}}
    direct.write_text(json.dumps(other))
    lost = site / "jupyter_mntrain" / "verbs" / "table.py"
    lost.unlink()
    script = driver.home / "long.py"
    script.write_text("import time\ntime.sleep(600)\n")
    job = ours(driver, mntrain, "launch", str(script), "--member", "node1:1")["job_id"]
    before = agent_pids(first)

    code, (one,) = do("upgrade", "--without-systemd", "node1")
    assert (code, one["problem"]["kind"]) == (3, Kind.JOBS_RUNNING)
    assert job in one["problem"]["cause"]
    assert not lost.exists()

    ours(driver, mntrain, "stop", job)
    code, (one,) = do("upgrade", "--without-systemd", "node1")
    assert (code, one["node"]) == (0, "node1"), one
    assert lost.exists()
    assert len(agent_pids(first)) == 1
    assert agent_pids(first) != before
    code, (one,) = do("upgrade", "--without-systemd", "node1")
    assert (code, one.get("changed", [])) == (0, [])


def test_an_upgrade_without_hosts_is_of_all_that_were_installed(do: Any) -> None:
    code, hosts = do("upgrade", "--without-systemd")
    assert code == 0, hosts
    assert sorted(one["node"] for one in hosts) == ["node1", "node2"]
    assert [one.get("changed", []) for one in hosts] == [[], []]
