"""Agents in pods: admitted late, evicted once, and the job goes on in new pods."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests import netlab
from tests.kubernetes_lab.kubelet import NO_SUCH_IMAGE
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


@dataclass
class PodsLab:
    """A control plane, a login host and hosts for pods.

    Args:
        folder: of volumes and logs.
    """

    lab: Lab
    folder: Path
    log: Path

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A module with its arguments, on the first host."""
        kubeconfig = {"KUBECONFIG": str(self.folder / "kubeconfig")}
        python = [sys.executable, "-m", *words]
        return self.lab.hosts[0].run(python, timeout_s=TOLD_S, environment=kubeconfig)

    def pids(self) -> dict[str, set[int]]:
        return {host.name: host.pids() for host in self.lab.hosts[1:]}


@pytest.fixture(scope="module")
def pods(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PodsLab]:
    if why := netlab.missing():
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("pods")
    with netlab.own_lab(NODES + 1) as lab, kubernetes(lab, folder) as log:
        yield PodsLab(lab, folder, log)


def test_a_job_in_pods_is_admitted_late_evicted_once_and_goes_on(pods: PodsLab) -> None:
    before = pods.pids()
    done = pods.run("tests.kubernetes_lab.story")
    print(done.stdout, pods.log.read_text())
    assert done.returncode == 0, done.stderr
    until(lambda: pods.pids() == before, "no process is left")
    said = {one["what"]: one for one in map(json.loads, done.stdout.splitlines())}
    assert said["waits"]["why"]
    assert sorted(said["joined"]["hosts"]) == sorted(before)
    killed = "kill" in pods.log.read_text().split()
    assert not killed, "every pod ended by itself, within its grace"
    step = said["goes on"]["step"]
    assert step >= 5
    logs = sorted(pods.folder.glob("claims/runs/ours-*/kubernetes-*/jobs/*/attempt-*/log"))
    assert len(logs) == 2 * NODES, "both attempts of the job, on both nodes"
    told = "".join(path.read_text() for path in logs)
    assert told.count(f"saved {step} ") == NODES
    assert told.count(f"begins after {step}\n") == NODES


SHORT = """
import torch.distributed as dist
from jupyter_mntrain import Recorder

dist.init_process_group("gloo")
with Recorder() as recorder:
    for step in range(1, 6):
        dist.barrier()
        recorder.step(step=step, tokens=10, loss=1 / step)
dist.destroy_process_group()
"""


def test_a_launch_on_pods_as_a_user_types_it(pods: PodsLab) -> None:
    (pods.folder / "short.py").write_text(SHORT)
    before = pods.pids()

    def launch(*more: str, image: str = "train") -> subprocess.CompletedProcess[str]:
        on = ("--on", "kubernetes", "--nodes", str(NODES), "--image", image, "--reach", "direct")
        script = str(pods.folder / "short.py")
        return pods.run("jupyter_mntrain.cli", "launch", script, *on, *more)

    made = pods.log.read_text().count("create")
    shown = launch("--dry-run")
    assert shown.returncode == 0, shown.stderr
    assert [one["kind"] for one in yaml.safe_load_all(shown.stdout)] == [
        "JobSet",
        "Secret",
        "NetworkPolicy",
    ]
    assert pods.log.read_text().count("create") == made, "nothing is created"
    never = launch(image=NO_SUCH_IMAGE)
    assert never.returncode != 0
    assert "--pull-secret" in never.stderr
    done = launch("--wait", "--idle", "1s", "--skip-doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    until(lambda: pods.pids() == before, "idle agents end, and their pods with them")
