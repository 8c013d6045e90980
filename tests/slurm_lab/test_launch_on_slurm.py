"""A launch on nodes of SLURM, as a user types it: from the request to nodes that are given back."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.netlab import HostProcess
from tests.netlab.terminal import type_on
from tests.slurm_lab import SlurmLab
from tests.slurm_lab.driver import SCRIPT
from tests.slurm_lab.rendezvous import RENDEZVOUS
from tests.waiting import until
from tests.wording import says

pytestmark = [pytest.mark.netlab]

TRAINED_S = 300.0

FEW_STEPS = """
import os, time
import torch
import torch.distributed as dist
from jupyter_mntrain import Recorder

assert "SLURM_PROCID" not in os.environ
dist.init_process_group("gloo")
with Recorder() as recorder:
    for step in range(1, 20):
        there = torch.ones(1)
        dist.all_reduce(there)
        assert there == dist.get_world_size()
        recorder.step(tokens=100, loss=1 / step, compute_s=0.01)
        time.sleep(0.1)
dist.destroy_process_group()
"""

FEW_WITHOUT_TORCH = SCRIPT.replace("100_000", "20")

RESUMING = (
    RENDEZVOUS
    + """
import json
from pathlib import Path
from jupyter_mntrain import ControlReader, Recorder

path = Path(os.environ["MNTRAIN_CHECKPOINT_DIR"]) / f"rank{RANK}.json"
step, loss = json.loads(path.read_text()) if path.exists() else (0, 0.3)
wishes = ControlReader()
with Recorder() as recorder:
    recorder.start(saves=True)
    while True:
        if agreed(wishes.wants_stop()):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps([step, loss]))
            recorder.saved(step)
            break
        step, loss = step + 1, 3.9 * loss * (1 - loss)
        recorder.step(step=step, tokens=100, loss=loss)
        print("step", step, loss.hex(), flush=True)
        time.sleep(0.1)
"""
)
"""Chaotic: a step that is lost, or made twice, changes all later losses."""


class User:
    """Somebody on the login node, who types ``mntrain``.

    Args:
        directory: where that is.
    """

    def __init__(self, slurm: SlurmLab, directory: Path) -> None:
        self.slurm = slurm
        self.environment = slurm.environment | {"PWD": str(directory)}
        self._directory = directory
        for name, text in (
            ("train.py", SCRIPT),
            ("few.py", FEW_STEPS),
            ("few_without_torch.py", FEW_WITHOUT_TORCH),
            ("resuming.py", RESUMING),
        ):
            (directory / name).write_text(text)

    def words(self, line: Sequence[str]) -> list[str]:
        program = f"cd {self._directory}; exec {sys.executable} -m jupyter_mntrain.cli"
        return ["bash", "-c", f'{program} "$@"', "mntrain", *line]

    def types(self, *line: str) -> subprocess.CompletedProcess[str]:
        return type_on(
            self.slurm.login,
            line,
            timeout_s=TRAINED_S,
            environment=self.environment,
            directory=self._directory,
        )

    def gets(self, *line: str) -> Any:
        """What a command prints for programs."""
        done = self.types(*line, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def state(self, *job: str) -> str:
        """Of a job, or of the newest; empty while what reads the records of agents that are gone
        is starting.
        """
        done = self.types("status", *job, "--json")
        return "" if done.returncode else str(json.loads(done.stdout)["state"])

    def begins(self, *line: str) -> HostProcess:
        """A command that runs on."""
        return self.slurm.login.popen(
            self.words(line),
            environment=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    @property
    def allocations(self) -> list[Path]:
        """Folders of allocations, the newest last."""
        folders = (self.slurm.login.home / ".local/state/mntrain/slurm").glob("*")
        return sorted(folders, key=lambda path: (path / "job.sh").stat().st_mtime)

    @property
    def newest(self) -> Path:
        return self.allocations[-1]

    @property
    def clusters(self) -> list[str]:
        """Names of clusters of which there are keys."""
        folder = self.slurm.login.home / ".config/mntrain/clusters"
        return sorted(path.name for path in folder.glob("*"))


def hosts(folder: Path) -> dict[str, str]:
    """The machine of each slot."""
    return {path.name: path.read_text().strip() for path in folder.glob("hosts/*")}


@pytest.fixture
def user(slurm: SlurmLab, tmp_path: Path) -> User:
    return User(slurm, tmp_path)


def test_a_job_runs_on_nodes_of_slurm_which_are_given_back(slurm: SlurmLab, user: User) -> None:
    before = {node.name: node.pids() for node in slurm.nodes}
    # Nobody waits: the job starts all the same, and who attaches sees it start, and its end.
    asked = user.gets(
        *("launch", "few.py", "--on", "slurm", "--nodes", "3", "--gpus", "2", "--time", "10m"),
        *("--idle", "1s", "--no-wait"),
    )
    assert asked["allocation_id"] in slurm.queue()
    attached = user.types("attach", asked["cluster"])
    assert attached.returncode == 0, attached.stdout + attached.stderr
    assert set(hosts(user.newest).values()) == {node.name for node in slurm.nodes}
    until(lambda: not slurm.queue(), "the allocation ends without a job", 60.0)
    until(lambda: {node.name: node.pids() for node in slurm.nodes} == before, "no process is left")
    folder = user.newest
    assert not (folder / "secrets").exists()
    # Once the nodes are gone, the job is found without any word of where it ran.
    status = user.gets("status")
    assert status["state"] == "succeeded"
    job = status["job_id"]
    assert user.gets("status", job[:6])["job_id"] == job
    assert user.types("logs", job).returncode == 0


def test_a_job_goes_on_as_itself_on_whatever_nodes_come(slurm: SlurmLab, user: User) -> None:
    started = user.gets(
        *("launch", "resuming.py", "--on", "slurm", "--nodes", "2", "--time", "20m", "--detach"),
        *("--member", "slurm-0:1", "--member", "slurm-1:1", "--skip-doctor"),
    )
    job = started["job_id"]
    folder = user.newest
    (number,) = slurm.queue()
    first = hosts(folder)

    def losses() -> dict[int, str]:
        """By step, of the head; a step that was made again is there with its last loss."""
        lines = (line for log in logs() for line in log.read_text().splitlines())
        told = [line.split()[-3:] for line in lines if "step " in line]
        return {int(step): loss for name, step, loss in told if name == "step"}

    def logs() -> list[Path]:
        return sorted(folder.glob(f"slurm-0/jobs/{job}/attempt-*/log"))

    until(lambda: len(losses()) > 5, "some steps", TRAINED_S)

    def urgent(*more: str) -> str:
        """A job of higher priority; its number."""
        words = ("--parsable", "--partition=urgent", "--exclusive", "--output=/dev/null", *more)
        return slurm.run("sbatch", *words).strip()

    # What SLURM does before the time limit. Other jobs have all nodes, then one, meanwhile.
    slurm.run("scancel", "--batch", "--signal=USR1", number)
    until(lambda: slurm.queue().get(number) == "PENDING", "it is queued again", TRAINED_S)
    everything = urgent("--nodes=3", "--wrap=sleep 600")
    until(lambda: user.state(job) == "pending", "it is said to wait", TRAINED_S)
    saved = max(losses())
    urgent(f"--nodelist={first['slurm-0']}", "--wrap=sleep 600")
    slurm.run("scancel", everything)
    until(lambda: slurm.queue().get(number) == "RUNNING", "nodes are granted", TRAINED_S)
    since_s = time.monotonic()
    until(lambda: max(losses()) > saved, "a new step", TRAINED_S)
    print("from nodes to the first new step:", time.monotonic() - since_s, "s")
    assert set(hosts(folder).values()) != set(first.values())
    # A preemption leaves no time to save: it goes on from the checkpoint that there is.
    urgent("--nodes=2", "--wrap=true")
    until(lambda: len(logs()) == 3, "another attempt", TRAINED_S)
    until(lambda: "step" in logs()[2].read_text(), "its first step", TRAINED_S)
    loss, expected = 0.3, {}
    for step in range(1, max(losses()) + 1):
        loss = 3.9 * loss * (1 - loss)
        expected[step] = loss.hex()
    assert losses() == expected
    # Stopped while it waits in the queue again, it never comes back.
    slurm.run("scancel", "--batch", "--signal=USR1", number)
    until(lambda: slurm.queue().get(number) == "PENDING", "it is queued again", TRAINED_S)
    urgent("--nodes=3", "--wrap=sleep 600")
    stopped = user.types("stop", job)
    assert stopped.returncode == 0, stopped.stdout + stopped.stderr
    assert number not in slurm.queue()
    assert user.state(job) == "canceled"


def test_an_allocation_of_ones_own_serves_several_jobs_and_stays(
    slurm: SlurmLab, user: User, tmp_path: Path
) -> None:
    before = {node.name: node.pids() for node in slurm.nodes}
    words = ("launch", "few_without_torch.py", "--on", "slurm", "--jobid", "here", "--gpus", "1")
    words += ("--idle", "1s")
    inside = shlex.join(user.words([*words, "--wait"]))
    salloc = ["salloc", "--nodes=2", "--gpus-per-node=2", "--time=20", "bash", "-c"]
    log = tmp_path / "salloc.log"
    with log.open("w") as out:
        slurm.login.popen(
            [*salloc, f"{inside}; echo ended: $?; exec sleep 600"],
            environment=user.environment,
            stdout=out,
            stderr=out,
        )
    until(lambda: "ended:" in log.read_text(), "the first job to end", TRAINED_S)
    assert "ended: 0" in log.read_text(), log.read_text()
    (number,) = slurm.queue()
    folder = user.newest
    until((folder / "code").exists, "its steps end", 60.0)
    assert len(set(hosts(folder).values())) == 2
    assert not (folder / "secrets").exists()
    until(lambda: {node.name: node.pids() for node in slurm.nodes} == before, "no agent is left")
    assert slurm.queue() == {number: "RUNNING"}
    # Another job on it: somebody else's step of it stays when that job, which runs, is given back.
    asked = user.gets("launch", "train.py", *words[2:4], "--jobid", number, "--no-wait")
    attached = user.begins("attach", asked["cluster"])
    until(lambda: user.state(asked["cluster"]) == "running", "the job runs", TRAINED_S)
    other = slurm.login.popen(
        ["srun", f"--jobid={number}", "--overlap", "sleep", "300"], environment=user.environment
    )
    steps = ("squeue", "-h", "-s", "-j", number, "-o", "%j")
    until(lambda: "sleep" in slurm.run(*steps), "the other step")
    stopped = user.types("stop", asked["cluster"], "--give-back")
    assert stopped.returncode == 0, stopped.stdout + stopped.stderr
    until(lambda: user.newest.name not in slurm.run(*steps), "our step ends", 60.0)
    assert "sleep" in slurm.run(*steps)
    assert other.poll() is None
    assert slurm.queue() == {number: "RUNNING"}
    attached.communicate(timeout=TRAINED_S)


def test_who_no_longer_waits_leaves_nothing_behind(slurm: SlurmLab, user: User) -> None:
    slurm.run("sbatch", "--exclusive", "--nodes=2", "--wrap=sleep 600", "--output=/dev/null")
    # Who waited for others in the background may forget those meanwhile.
    known = {*user.allocations, *user.clusters}
    waits = user.begins(
        "launch", "train.py", "--on", "slurm", "--nodes", "3", "--sbatch=--exclusive"
    )
    until(lambda: len(slurm.queue()) == 2, "it waits")
    until(lambda: "Resources" in slurm.run("squeue", "-h", "-o", "%r"), "it is looked at")
    assert any("Resources" in line for line in iter(waits.stdout.readline, ""))
    waits.send_signal(signal.SIGINT)
    waits.communicate(timeout=TRAINED_S)
    assert waits.returncode == 130
    assert len(slurm.queue()) == 1
    assert {*user.allocations, *user.clusters} <= known
    # The same where nobody has waited.
    asked = user.gets(
        *("launch", "train.py", "--on", "slurm", "--nodes", "3", "--sbatch=--exclusive"),
        "--no-wait",
    )
    assert user.gets("status")["allocation"]["waiting"]["word"] in ("Resources", "Priority", "None")
    stopped = user.types("stop", asked["cluster"])
    assert stopped.returncode == 0, stopped.stderr
    assert len(slurm.queue()) == 1
    assert {*user.allocations, *user.clusters} <= known


@pytest.mark.parametrize(
    ("options", "fix"),
    [
        (["--partition", "nope"], "main"),
        (["--gpus", "8"], "3 nodes with 4 fake GPUs"),
        (["--time", "2h", "--partition", "short"], "--time"),
    ],
)
def test_what_slurm_does_not_give_is_one_line(user: User, options: list[str], fix: str) -> None:
    done = user.types("launch", "few.py", "--on", "slurm", *options)
    assert done.returncode in (2, 4), done.stdout
    (line,) = done.stderr.splitlines()
    assert says(fix, line)
    assert not user.slurm.queue()
