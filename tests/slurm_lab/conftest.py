"""One SLURM for all tests; no job is left between two of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_mntrain.sources.slurm.slurm_queue import SlurmCommands
from jupyter_mntrain.sources.slurm.slurm_source import SlurmSource
from tests.slurm_lab import SlurmLab, missing_slurm, own_slurm


@pytest.fixture(scope="session")
def whole_slurm() -> Iterator[SlurmLab]:
    if why := missing_slurm():
        pytest.skip(why)
    with own_slurm() as slurm:
        yield slurm


@pytest.fixture
def slurm(whole_slurm: SlurmLab) -> Iterator[SlurmLab]:
    yield whole_slurm
    whole_slurm.clear()


@pytest.fixture
def source(slurm: SlurmLab, tmp_path: Path) -> SlurmSource:
    return source_of(slurm, tmp_path)


def source_of(slurm: SlurmLab, folder: Path) -> SlurmSource:
    """As on the login node."""
    path = f"{slurm.tools()}:{os.environ['PATH']}"
    return SlurmSource(folder, SlurmCommands({**os.environ, "PATH": path}))
