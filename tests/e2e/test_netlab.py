"""The whole product on simulated hosts: real multicast, two networks, real torchrun."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from jupyter_mntrain.agent.attempt.processes import environment_of
from jupyter_mntrain.metrics.recent import RECENT_S
from tests.agent.forking.python import forking_python
from tests.e2e.conftest import start
from tests.netlab import DATA, MANAGEMENT, Host, Lab
from tests.waiting import until

pytestmark = [pytest.mark.netlab, pytest.mark.slow]

STEPS = 12
RECIPE = f"""
[model]
preset = "llama-tiny"
hidden_size = 256

[data]
sequence_length = 128
vocabulary_size = 257

[pipeline]
schedule = "1f1b"
microbatches = 4

[train]
steps = {STEPS}
batch_size = 32
log_interval = 1
"""
SLEEPS = "import time; time.sleep(600)"
JOB_S = 240.0
"""On two cores that other tests use as well."""

ONE_THREAD = ("--env", "OMP_NUM_THREADS=1")
"""The hosts are three and the cores two."""

DECOY = "import time; print('ready', flush=True); time.sleep(600)  # jupyter_mntrain.train"
MANAGEMENT_SHARE = 0.05
"""Heartbeats and journals are all that may go over the management network."""


@pytest.fixture(scope="module")
def driver(lab: Lab) -> Host:
    """Drives from a host that takes no part: a driver is only a viewer."""
    return lab.host("node3")


@pytest.fixture(scope="module")
def run(driver: Host, mntrain: str):
    def run(*words: str, code: int = 0, timeout_s: float = JOB_S) -> Any:
        command = [mntrain, "--cluster", "lab", "--json", *words]
        done = driver.run(command, timeout_s=timeout_s)
        assert done.returncode == code, f"{words}: {done.stdout}\n{done.stderr}"
        return json.loads(done.stdout) if done.stdout.strip() else None

    return run


@pytest.fixture(scope="module")
def recipe(driver: Host) -> Path:
    path = driver.home / "recipe.toml"
    path.write_text(RECIPE)
    return path


def test_every_host_is_found_by_multicast_with_both_its_networks(run):
    nodes = run("nodes")
    assert sorted(node["node"] for node in nodes) == ["node1", "node2", "node3"]
    for node in nodes:
        assert node["found_by"] == "mdns"
        interfaces = {i["name"]: i for i in node["info"]["inventory"]["interfaces"]}
        assert {DATA, MANAGEMENT, "docker0"} <= set(interfaces)
        assert interfaces["docker0"]["kind"] == "virtual"


def test_asymmetric_job_trains_over_the_data_network_only(lab, run, recipe):
    members = ("--member", "node1:1", "--member", "node2:2")
    before = {h.name: (h.counters(DATA), h.counters(MANAGEMENT)) for h in lab.hosts}
    summary = run("launch", str(recipe), *members, *ONE_THREAD, "--wait")
    after = {h.name: (h.counters(DATA), h.counters(MANAGEMENT)) for h in lab.hosts}

    assert summary["state"] == "succeeded"
    assert [rank["node"] for rank in summary["ranks"]] == ["node1", "node2", "node2"]
    assert summary["step"] == STEPS
    assert summary["loss"] < summary["first_loss"] - 0.2

    payload = _payload(lab.host("node1"), rank=0)
    for direction, name in ((0, "sent"), (1, "received")):
        data = after["node1"][0][direction] - before["node1"][0][direction]
        management = after["node1"][1][direction] - before["node1"][1][direction]
        assert payload[name] <= data <= 1.1 * payload[name], (name, data, payload)
        assert management < MANAGEMENT_SHARE * data


def test_reported_link_utilization_agrees_with_the_analytic_bytes(lab, run):
    job = run("jobs")[0]["job_id"]
    summary = run("status", job)
    links = {(link["node"], link["direction"]): link for link in summary["links"]}
    steps = _steps(lab.host("node1"), rank=0)[2:]
    steps = [one for one in steps if one["time_s"] >= steps[-1]["time_s"] - RECENT_S]
    seconds = steps[-1]["time_s"] - steps[0]["time_s"]
    # Counters are read once per second: a burst of a step may fall on either side.
    tolerance = 0.05 + 1 / len(steps)
    for direction, field in (("sent", "sent_bytes"), ("received", "received_bytes")):
        link = links["node1", direction]
        assert link["basis"] == "interface"
        assert link["interface"] == DATA
        analytic = sum(sum(step[field].values()) for step in steps[1:]) / seconds / 125e6
        assert link["utilization"] == pytest.approx(analytic, rel=tolerance)


def test_stop_leaves_no_process_on_any_host_and_a_decoy_lives(lab, run, driver):
    script = driver.home / "sleeps.py"
    script.write_text(SLEEPS)
    decoy_log = driver.home / "decoy.log"
    # On the same host and in the same process table as the job's own ranks, and called like them.
    decoy = start(lab.host("node1"), [sys.executable, "-c", DECOY, "-u", script.name], decoy_log)
    until(lambda: "ready" in decoy_log.read_text(), "the decoy to run")
    before = {host.name: host.pids() for host in lab.hosts}
    members = ("--member", "node1:1", "--member", "node2:1", "--python", forking_python())
    job = run("launch", str(script), *members)["job_id"]
    until(lambda: [_ranks(host) for host in lab.hosts] == [["0"], ["1"], []], "its ranks", JOB_S)
    assert run("stop", job)["state"] == "canceled"
    for host in lab.hosts:
        until(lambda h=host: h.pids() <= before[h.name], f"nothing to be left on {host.name}")
    assert decoy.poll() is None


def _ranks(host: Host) -> list[str]:
    return [env["RANK"] for env in map(environment_of, host.pids()) if "LOCAL_RANK" in env]


def _steps(host: Host, rank: int) -> list[dict[str, Any]]:
    """What a rank of the newest job wrote, straight from its node's disk."""
    files = sorted(
        host.home.glob(f".local/state/mntrain/nodes/*/jobs/*/attempt-1/metrics/rank-{rank}.ndjson"),
        key=lambda path: path.stat().st_mtime,
    )
    lines = [json.loads(line) for line in files[-1].read_text().splitlines()]
    return [line for line in lines if line["kind"] == "step"]


def _payload(host: Host, rank: int) -> dict[str, int]:
    steps = _steps(host, rank)
    return {
        "sent": sum(sum(step["sent_bytes"].values()) for step in steps),
        "received": sum(sum(step["received_bytes"].values()) for step in steps),
    }
