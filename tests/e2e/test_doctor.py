"""The doctor on a simulated cluster: silent on a healthy one, and right about faults made there."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import CLUSTER
from tests.netlab import Host, Lab, missing
from tests.waiting import PATIENCE_S

pytestmark = [
    pytest.mark.netlab,
    pytest.mark.slow,
    pytest.mark.skipif(missing() is not None, reason=f"no lab: {missing()}"),
]


def examined(driver: Host, mntrain: str, *nodes: str) -> dict[str, Any]:
    """The doctor's report, whatever it found, once interpreters have told what they load."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        done = driver.run([mntrain, "--cluster", CLUSTER, "--json", "doctor", *nodes])
        assert done.returncode in (0, 1), done.stderr
        report = json.loads(done.stdout)
        is_known = not any(one["level"] == "unknown" for one in report["findings"])
        if is_known or time.monotonic() > deadline:
            return report


def found(report: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["check"], one["node"]) for one in report["findings"] if one["level"] != "passed"]


def test_nothing_is_said_of_a_healthy_cluster(lab: Lab, mntrain: str):
    report = examined(lab.host("node3"), mntrain)
    assert sorted(report["nodes"]) == ["node1", "node2", "node3"]
    assert found(report) == []


def test_a_name_server_that_does_not_answer_is_named(lab: Lab, mntrain: str):
    host = lab.host("node1")
    names = host.run(["cat", "/etc/resolv.conf"]).stdout
    hosts = host.run(["cat", "/etc/hosts"]).stdout
    try:
        write(host, "/etc/resolv.conf", "nameserver 10.77.1.77\n")
        write(host, "/etc/hosts", "127.0.0.1 localhost\n10.77.1.1 node1\n")
        assert found(examined(lab.host("node3"), mntrain)) == [("reverse-dns", "node1")]
    finally:
        write(host, "/etc/resolv.conf", names)
        write(host, "/etc/hosts", hosts)


def test_a_disk_that_fills_is_named(lab: Lab, mntrain: str):
    # The hosts share this machine's disks, but for what is mounted on one of them.
    host = lab.host("node2")
    done = host.run(["find", str(host.home), "-type", "d", "-name", "jobs"])
    runs = f"{Path(done.stdout.split()[0]).parent}/runs"
    run_on(host, "mkdir", "-p", runs)
    run_on(host, "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", runs)
    try:
        report = examined(lab.host("node3"), mntrain)
        assert found(report) == [("disk-space", "node2")]
        assert report["findings"][0]["level"] == "stops"
    finally:
        run_on(host, "umount", runs)


def write(host: Host, path: str, text: str) -> None:
    subprocess.run(
        host.command(["tee", path]), input=text, text=True, check=True, stdout=subprocess.DEVNULL
    )


def run_on(host: Host, *words: str) -> None:
    done = host.run(list(words))
    assert done.returncode == 0, done.stderr
