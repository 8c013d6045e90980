"""A SLURM that grants what it is told to, and the cluster that its nodes form."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from jupyter_mntrain.sources.allocation_book import AllocationBook
from jupyter_mntrain.verbs.launching.allocations import launch_on
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


@pytest.fixture
def waits(
    slurm: SlurmTools, cluster: StandInCluster, tmp_path: Path, left: list[str]
) -> Callable[[], None]:
    """A launch waits for its nodes; called, it becomes a job, as its own process has it do."""
    run_words(LAUNCH, make_context(cluster, directory=tmp_path))
    job = cluster.to_launch

    def starts() -> None:
        cluster.name, cluster._jobs = left[0], {job.id: job}
        AllocationBook().launched(left[0], job.id)

    return starts
