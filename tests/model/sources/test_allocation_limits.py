"""What an environment tells of an allocation."""

from __future__ import annotations

import pytest

from jupyter_mntrain.model.sources.allocation_limits import AllocationLimits, read_allocation_limits

GIB = 1 << 30


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({}, AllocationLimits()),
        ({"SLURM_CPUS_ON_NODE": "4"}, AllocationLimits(cpus=4)),
        ({"SLURM_CPUS_ON_NODE": "4(x2)"}, AllocationLimits()),
        ({"SLURM_MEM_PER_NODE": "2048"}, AllocationLimits(memory_bytes=2 * GIB)),
        ({"SLURM_MEM_PER_NODE": "0"}, AllocationLimits()),
        ({"SLURM_MEM_PER_CPU": "1024"}, AllocationLimits()),
        (
            {"SLURM_MEM_PER_CPU": "1024", "SLURM_CPUS_ON_NODE": "3"},
            AllocationLimits(cpus=3, memory_bytes=3 * GIB),
        ),
        ({"SLURM_JOB_END_TIME": "1764244800"}, AllocationLimits(ends_s=1764244800)),
        ({"CUDA_VISIBLE_DEVICES": "2,3"}, AllocationLimits(gpus="2,3")),
        ({"SLURM_JOB_ID": "7"}, AllocationLimits(is_scheduled=True)),
        ({"CUDA_VISIBLE_DEVICES": ""}, AllocationLimits(gpus="")),
        ({"NVIDIA_VISIBLE_DEVICES": "all"}, AllocationLimits()),
        ({"NVIDIA_VISIBLE_DEVICES": "MIG-7"}, AllocationLimits(gpus="MIG-7")),
        (
            {"NVIDIA_VISIBLE_DEVICES": "MIG-7", "CUDA_VISIBLE_DEVICES": "MIG-8"},
            AllocationLimits(gpus="MIG-8"),
        ),
    ],
)
def test_an_environment_tells_what_was_given(
    environment: dict[str, str], told: AllocationLimits
) -> None:
    assert read_allocation_limits(environment) == told
