"""Agents in a SLURM allocation: they join, a job trains on them, and nothing is left."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec
import pytest

from jupyter_mntrain.model.records.job import JobRecord
from tests.slurm_lab import SlurmLab
from tests.waiting import until

pytestmark = [pytest.mark.netlab]

TRAINED_S = 300.0


@pytest.mark.parametrize(("end", "nodes"), [("cancel", 1), ("save", 2)])
def test_agents_join_a_job_trains_and_nothing_is_left(
    slurm: SlurmLab, tmp_path: Path, end: str, nodes: int
) -> None:
    before = {node.name: node.pids() for node in slurm.nodes}
    words = [sys.executable, "-m", "tests.slurm_lab.driver", str(tmp_path), end, str(nodes)]
    done = slurm.login.run(words, timeout_s=TRAINED_S, environment=slurm.environment)
    print(done.stdout)
    assert done.returncode == 0, done.stderr
    said = {one["what"]: one for one in map(json.loads, done.stdout.splitlines())}
    assert len(set(said["joined"]["hosts"].values()) & before.keys()) == nodes
    assert said["trains"]["ranks"] == [*range(nodes)]
    assert said["ended"]["outcome"] == "canceled"
    if end == "save":
        assert said["saved"]["state"] == "canceled"
    until(lambda: {node.name: node.pids() for node in slurm.nodes} == before, "no process is left")
    (folder,) = tmp_path.iterdir()
    assert not (folder / "secrets").exists()
    logs = "".join(path.read_text() for path in folder.glob("slurm-*/jobs/*/attempt-1/log"))
    assert ("saved at" in logs) == (end == "save")
    for slot in said["joined"]["hosts"]:
        (path,) = folder.glob(f"{slot}/jobs/*/record.json")
        part = msgspec.json.decode(path.read_bytes(), type=JobRecord).part
        # Of one that saves and ends by itself, the head's part says that it was asked to.
        assert part.state == "canceled" or (end == "save" and part.state == "succeeded")
