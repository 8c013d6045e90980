"""Projects on two real agents: sent once, run by real torchrun, resumed, and never half there."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from jupyter_mntrain.cluster import Cluster
from jupyter_mntrain.model.errors import MntrainError, RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.job import JobSpec, Participant
from jupyter_mntrain.verbs.verb import Outcome
from tests.agent.live import LiveAgent
from tests.standin.screen import make_context, run_words

pytestmark = pytest.mark.slow

JOB_S = 240.0

TRAIN = """
import os, sys
from pathlib import Path
from pkg.inner import answer
import hashlib
told = [answer(), hashlib.sha256(Path("data/weights.bin").read_bytes()).hexdigest(),
        os.access("run.sh", os.X_OK), Path("data/ignored.log").exists(), Path("out").is_dir()]
print("TOLD", *told, flush=True)
"""
WEIGHTS = os.urandom(5 << 20)
"""Sent in two parts."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "lm"
    for name, content in {
        "train.py": TRAIN,
        "pkg/__init__.py": "",
        "pkg/inner.py": "def answer():\n    return 41\n",
        "run.sh": "#!/bin/sh\n",
        "data/ignored.log": "big",
        ".gitignore": "*.log\n",
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    (root / "run.sh").chmod(0o755)
    (root / "data" / "weights.bin").write_bytes(WEIGHTS)
    (root / "out").mkdir()
    return root


def run(cluster: Cluster, project: Path, *words: str) -> Outcome:
    return run_words(words, make_context(cluster, directory=project))  # type: ignore[arg-type]


def told(cluster: Cluster, outcome: Outcome) -> list[list[str]]:
    """What each rank said."""
    job = cluster.job(outcome.data["job_id"])
    assert job.wait(timeout_s=JOB_S).state == "succeeded", job.logs(tail=50)
    lines = [line.text for line in job.logs(tail=100)]
    return [line.partition("TOLD ")[2].split() for line in lines if "TOLD " in line]


def blobs(agent: LiveAgent) -> set[str]:
    return {path.name for path in agent.state.glob("blobs/??/*")}


def expected(answer: str) -> list[list[str]]:
    return [[answer, hashlib.sha256(WEIGHTS).hexdigest(), "True", "False", "True"]] * 2


def test_a_project_is_sent_once_and_belongs_to_its_run(
    cluster: Cluster, agents: list[LiveAgent], project: Path
) -> None:
    first = run(cluster, project, "launch", "train.py", "--detach")
    assert told(cluster, first) == expected("41")
    before = [blobs(agent) for agent in agents]
    assert all(len(one) == 7 for one in before), "six contents and the tree"

    (project / "pkg" / "inner.py").write_text("def answer():\n    return 42\n")
    changed = hashlib.sha256((project / "pkg" / "inner.py").read_bytes()).hexdigest()
    second = run(cluster, project, "launch", "train.py", "--queue", "--detach")
    assert told(cluster, second) == expected("42")
    for agent, had in zip(agents, before, strict=True):
        assert blobs(agent) - had == {changed, second.data["project"]["sha256"]}

    # Without the folder: the files belong to the run, and one node still has them.
    for path in agents[1].state.glob("blobs/??/*"):
        path.unlink()
    resumed = run(cluster, project.parent, "resume", second.data["job_id"], "--detach")
    assert told(cluster, resumed) == expected("42")
    assert {changed, second.data["project"]["sha256"]} <= blobs(agents[1])


def test_a_project_that_no_node_has_is_refused_before_anything_is_leased(
    cluster: Cluster, agents: list[LiveAgent]
) -> None:
    members = tuple(Participant(node=agent.name) for agent in agents)
    spec = JobSpec(entry=("train.py",), participants=members, project="0" * 64)
    with pytest.raises(RefusedError) as caught:
        cluster.launch(spec)
    assert caught.value.kind is Kind.NO_FILE
    assert not any(agent.info().leases for agent in agents)


def test_a_folder_that_nodes_lack_is_refused_with_their_names(
    cluster: Cluster, agents: list[LiveAgent], project: Path
) -> None:
    def launch(path: Any) -> None:
        run(cluster, project, "launch", "train.py", "--workdir", str(path), "--detach")

    with pytest.raises(MntrainError) as caught:
        launch(project / "gone")
    assert caught.value.kind is Kind.NO_FILE
    assert all(agent.name in caught.value.cause for agent in agents)
    assert not any(agent.info().leases for agent in agents)
    words = ("--workdir", str(project), "--member", f"{agents[0].name}:1", "--detach")
    done = run(cluster, project, "launch", "train.py", *words)
    assert [line[0] for line in told(cluster, done)] == ["41"]
