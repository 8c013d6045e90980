"""Agents in pods: admitted late, evicted once, and the job goes on in new pods."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import netlab
from tests.kubernetes_lab.story import NODES
from tests.netlab import Lab
from tests.waiting import until

pytestmark = [pytest.mark.netlab]

TOLD_S = 300.0


@contextmanager
def kubernetes(lab: Lab, folder: Path) -> Iterator[Path]:
    """A control plane on the first host; the file that it logs into."""
    log = folder / "control.log"
    inside = ("ip", "netns", "exec", lab.hosts[0].namespace)
    words = (sys.executable, "-m", "tests.kubernetes_lab.control")
    with log.open("w") as said:
        process = subprocess.Popen(
            [*inside, *words, lab.prefix, str(folder), str(NODES)], stdout=said, stderr=said
        )
    try:
        until(lambda: log.read_text().startswith("up") or process.poll() is not None, "API server")
        yield log
    finally:
        process.terminate()
        process.wait()


def test_a_job_in_pods_is_admitted_late_evicted_once_and_goes_on(tmp_path: Path) -> None:
    if why := netlab.missing():
        pytest.skip(why)
    with netlab.own_lab(NODES + 1) as lab, kubernetes(lab, tmp_path) as log:
        before = {host.name: host.pids() for host in lab.hosts[1:]}
        words = [sys.executable, "-m", "tests.kubernetes_lab.story"]
        kubeconfig = {"KUBECONFIG": str(tmp_path / "kubeconfig")}
        done = lab.hosts[0].run(words, timeout_s=TOLD_S, environment=kubeconfig)
        print(done.stdout, log.read_text())
        assert done.returncode == 0, done.stderr
        until(
            lambda: {host.name: host.pids() for host in lab.hosts[1:]} == before,
            "no process is left",
        )
    said = {one["what"]: one for one in map(json.loads, done.stdout.splitlines())}
    assert said["waits"]["why"]
    assert sorted(said["joined"]["hosts"]) == sorted(before)
    assert "kill" not in log.read_text().split(), "every pod ended by itself, within its grace"
    assert said["saved"]["step"] >= 5
    assert said["goes on"]["step"] == said["saved"]["step"]
    logs = sorted(tmp_path.glob("claims/runs/ours-*/kubernetes-*/jobs/*/attempt-1/log"))
    assert len(logs) == 2 * NODES, "both jobs, on both nodes"
    told = "".join(path.read_text() for path in logs)
    assert told.count(f"saved {said['saved']['step']} ") == NODES
    assert told.count(f"begins after {said['saved']['step']}\n") == NODES
