"""What ranks do not inherit."""

from __future__ import annotations

import pytest

from jupyter_mntrain.model.sources.launchers import counterpart, without_launchers


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


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("OMPI_COMM_WORLD_RANK", "RANK"),
        ("OMPI_COMM_WORLD_SIZE", "WORLD_SIZE"),
        ("OMPI_COMM_WORLD_LOCAL_RANK", "LOCAL_RANK"),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "LOCAL_WORLD_SIZE"),
        ("OMPI_COMM_WORLD_NODE_RANK", "GROUP_RANK"),
        ("SLURM_PROCID", "RANK"),
        ("SLURM_NTASKS", "WORLD_SIZE"),
        ("SLURM_LOCALID", "LOCAL_RANK"),
        ("SLURM_NODEID", "GROUP_RANK"),
        ("SLURM_NTASKS_PER_NODE", "LOCAL_WORLD_SIZE"),
        ("SLURM_JOB_NUM_NODES", "NNODES"),
        ("SLURM_NNODES", "NNODES"),
        ("SLURM_NODELIST", "MASTER_ADDR"),
        ("SLURM_LAUNCH_NODE_IPADDR", "MASTER_ADDR"),
        ("PMI_RANK", "RANK"),
        ("PMI_SIZE", "WORLD_SIZE"),
        ("PMIX_RANK", "RANK"),
        ("MPI_LOCALRANKID", "LOCAL_RANK"),
        ("MPI_LOCALNRANKS", "LOCAL_WORLD_SIZE"),
        ("MV2_COMM_WORLD_LOCAL_RANK", "LOCAL_RANK"),
        ("MV2_COMM_WORLD_SIZE", "WORLD_SIZE"),
        ("JSM_NAMESPACE_RANK", "RANK"),
        ("PALS_LOCAL_RANKID", "LOCAL_RANK"),
        ("PALS_RANKID", "RANK"),
        ("HOROVOD_RANK", "RANK"),
        ("FLUX_TASK_LOCAL_ID", "LOCAL_RANK"),
        ("SLURM_JOB_ID", None),
        ("SLURM_TMPDIR", None),
        ("DATA_ROOT", None),
        ("RANK", None),
        ("MPI_HOME", None),
    ],
)
def test_what_torchrun_tells_in_place_of_another_launcher(name: str, own: str | None):
    assert counterpart(name) == own
