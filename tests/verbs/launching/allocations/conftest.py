"""A SLURM that grants what it is told to, and the cluster that its nodes form."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.standin.cluster import StandInCluster, node
from tests.standin.slurm_tools import SlurmTools


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlurmTools:
    (tmp_path / "train.py").write_text("print(1)")
    return SlurmTools(tmp_path / "slurm", monkeypatch)


@pytest.fixture
def cluster() -> StandInCluster:
    return StandInCluster([node("slurm-0", 1), node("slurm-1", 2)])
