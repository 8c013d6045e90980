"""What ranks do not inherit."""

from __future__ import annotations

import pytest

from jupyter_mntrain.model.sources.launchers import without_launchers


@pytest.mark.parametrize(
    ("name", "is_kept"),
    [
        ("SLURM_JOB_ID", True),
        ("SLURM_JOB_NODELIST", True),
        ("SLURM_CPUS_ON_NODE", True),
        ("PMIX", False),
        ("PMI_RANK", False),
        ("PMI2_FD", False),
        ("PMIX_NAMESPACE", False),
        ("OMPI_COMM_WORLD_RANK", False),
        ("PET_NNODES", False),
        ("PETS", True),
        ("SLURM_PROCID", False),
        ("SLURM_LOCALID", False),
        ("SLURM_NODEID", False),
        ("SLURM_NTASKS", False),
        ("SLURM_NTASKS_PER_NODE", False),
        ("SLURM_STEP_NUM_TASKS", False),
        ("SLURM_STEP_TASKS_PER_NODE", False),
        ("SLURM_NPROCS", False),
        ("RANK", True),
        ("PATH", True),
    ],
)
def test_ranks_do_not_hear_of_another_launcher(name: str, *, is_kept: bool) -> None:
    assert (name in without_launchers({name: "1"})) is is_kept
