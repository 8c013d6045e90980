"""Asymmetric link: each direction has its own measured capacity and utilization."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.agent.forking.python import forking_python
from tests.e2e.conftest import CLUSTER, invite, join, ours, up
from tests.faults.bench import SCRIPT
from tests.netlab import DATA, Host, Lab, missing, own_lab
from tests.waiting import until

pytestmark = [
    pytest.mark.netlab,
    pytest.mark.slow,
    pytest.mark.skipif(missing() is not None, reason=f"no lab: {missing()}"),
]

MBIT_PER_S = {"node1": 100, "node2": 20}
"""What each of the two hosts can send."""

MEMBERS = [f"--member={name}:1:{DATA}" for name in MBIT_PER_S]

STEPS = 12


@pytest.fixture(scope="module")
def driver(mntrain: str) -> Iterator[Host]:
    """The first of two joined hosts, whose links are as fast as they can send."""
    with own_lab(2) as lab:
        one = lab.host("node1")
        token = invite(one, mntrain, "--uses", "2")
        for host in lab.hosts:
            join(host, mntrain, token)
            shape(lab, host)
        until(lambda: len(up(one, mntrain)) == 2, "two nodes to be up")
        yield one


def shape(lab: Lab, host: Host) -> None:
    rate = MBIT_PER_S[host.name]
    lab.shape_sending(host, DATA, f"rate {rate}mbit burst 32kb latency 50ms")


def expected(sender: str) -> Any:
    """Within what a second's measurement is off when other tests keep the processors busy."""
    return pytest.approx(MBIT_PER_S[sender] * 1e6 / 8, rel=0.1)


def measured(driver: Host, mntrain: str, *words: str) -> list[dict[str, Any]]:
    found: dict[str, Any] = ours(driver, mntrain, "measure", "--links", *MEMBERS, *words)
    return found["links"]


def test_each_direction_is_measured_and_kept_by_its_sender(driver: Host, mntrain: str) -> None:
    links = {link["sender"]: link for link in measured(driver, mntrain)}
    for sender, link in links.items():
        assert link["capacity"]["bytes_per_s"] == expected(sender)
        assert link["capacity"]["condition"] in ("alone", "short of CPU"), "whatever else runs"
    assert (links["node1"]["receiver"], links["node2"]["receiver"]) == ("node2", "node1")
    for node in ours(driver, mntrain, "nodes"):
        interfaces = {one["name"]: one for one in node["info"]["inventory"]["interfaces"]}
        assert interfaces[DATA]["links"] == [links[node["node"]]]


def test_of_a_job_each_direction_is_divided_by_its_own_capacity_and_measuring_beside_it_is_told(
    driver: Host, mntrain: str
) -> None:
    job = ours(driver, mntrain, "launch", str(SCRIPT), *MEMBERS, "--python", forking_python())[
        "job_id"
    ]

    def summary() -> dict[str, Any]:
        found: dict[str, Any] = ours(driver, mntrain, "status", job)
        return found

    try:
        until(lambda: (summary().get("step") or 0) >= STEPS, "the job to make steps")
        links = summary()["links"]
        senders = {("node1", "sent"): "node1", ("node2", "received"): "node1"}
        for link in links:
            sender = senders.get((link["node"], link["direction"]), "node2")
            capacity = link["capacity"]["bytes_per_s"]
            assert capacity == expected(sender), (link["node"], link["direction"])
            assert link["utilization"] == pytest.approx(link["bytes_per_s"] / capacity, rel=1e-4)
        assert len(links) == 4
        refused = driver.run(
            [mntrain, "--cluster", CLUSTER, "measure", "--links", *MEMBERS], timeout_s=60
        )
        assert refused.returncode == 4
        assert f"job {job} trains over {DATA}" in refused.stderr
        links = measured(driver, mntrain, "--beside-jobs")
        assert [link["capacity"]["condition"] for link in links] == ["beside a job"] * 2
    finally:
        ours(driver, mntrain, "stop", job)
