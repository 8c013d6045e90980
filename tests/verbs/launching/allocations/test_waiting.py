"""A launch whose nodes nobody waits for here: how it is seen, and how it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_mntrain.model.environment import CLUSTER_VARIABLE
from jupyter_mntrain.model.errors import RefusedError, SpecError
from jupyter_mntrain.sources.allocation_book import AllocationBook
from jupyter_mntrain.verbs.launching.allocations import launch_on
from jupyter_mntrain.verbs.launching.allocations.no_wait import TAKES_OVER
from tests.standin.cluster import StandInCluster, node
from tests.standin.screen import make_context, run_words
from tests.standin.slurm_tools import SlurmTools

LAUNCH = ("launch", "train.py", "--on", "slurm", "--nodes", "2", "--no-wait")


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlurmTools:
    (tmp_path / "train.py").write_text("print(1)")
    return SlurmTools(tmp_path / "slurm", monkeypatch)


@pytest.fixture
def cluster() -> StandInCluster:
    return StandInCluster([node("slurm-0", 1), node("slurm-1", 2)])


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Clusters whose launch was left to a process of its own."""
    found: list[str] = []

    def leave(*args: object) -> Path:
        found.append(str(args[-1]))
        return Path("its.log")

    monkeypatch.setattr(launch_on, "leave_waiting", leave)
    return found


def test_what_waits_is_seen_and_canceled(
    slurm: SlurmTools, cluster: StandInCluster, tmp_path: Path, left: list[str]
) -> None:
    context = make_context(cluster, directory=tmp_path)
    told = run_words(LAUNCH, context)
    assert told.data == {"allocation": "7", "cluster": left[0], "log": "its.log"}
    assert run_words(["status"], context).data["state"] == "pending"
    assert run_words(["stop", left[0]], context).data["state"] == "canceled"
    assert slurm.state == "CANCELLED"
    assert AllocationBook().of_last_launch() is None


def test_the_process_that_takes_over_launches_on_what_was_asked_for(
    slurm: SlurmTools, cluster: StandInCluster, tmp_path: Path, left: list[str]
) -> None:
    run_words(LAUNCH, make_context(cluster, directory=tmp_path))
    slurm.state, cluster.name = "RUNNING", left[0]
    words = [word for word in LAUNCH if word != "--no-wait"]
    takes_over = make_context(
        cluster, directory=tmp_path, environment={TAKES_OVER: left[0], CLUSTER_VARIABLE: ""}
    )
    job = run_words([*words, "--detach"], takes_over).job
    assert job is cluster.to_launch
    note = AllocationBook().of_last_launch()
    assert note is not None
    assert (note.cluster, note.jobs) == (left[0], (job.id,))
    # Queued again by SLURM: what stops the job takes it from the queue, too.
    slurm.state, cluster._jobs = "PENDING", {job.id: cluster.to_launch}
    run_words(["stop", job.id], make_context(cluster, directory=tmp_path))
    assert slurm.state == "CANCELLED"
    AllocationBook().forget(left[0])
    with pytest.raises(RefusedError):
        run_words([*words, "--detach"], takes_over)


def test_no_wait_contradicts_wait_and_a_cell(
    slurm: SlurmTools, cluster: StandInCluster, tmp_path: Path
) -> None:
    with pytest.raises(SpecError):
        run_words([*LAUNCH, "--wait"], make_context(cluster, directory=tmp_path))
    cell = make_context(cluster, directory=tmp_path, cell="print(1)")
    with pytest.raises(SpecError):
        run_words([word for word in LAUNCH if word != "train.py"], cell)
    assert AllocationBook().of_last_launch() is None


def test_an_acceptance_run_says_how_many_nodes_it_wants(
    slurm: SlurmTools, cluster: StandInCluster, tmp_path: Path
) -> None:
    context = make_context(cluster, directory=tmp_path)
    for words in (["--on", "slurm"], ["--on", "slurm", "--nodes", "2", "wopr"]):
        with pytest.raises(SpecError):
            run_words(["accept", *words], context)
    assert slurm.state == "PENDING"
    assert AllocationBook().of_last_launch() is None
