"""What an environment tells of an allocation."""

from __future__ import annotations

import pytest

from jupyter_mntrain.model.sources.allotment import Allotment, read_allotment

GIB = 1 << 30


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({}, Allotment()),
        ({"SLURM_CPUS_ON_NODE": "4"}, Allotment(cpus=4)),
        ({"SLURM_CPUS_ON_NODE": "4(x2)"}, Allotment()),
        ({"SLURM_MEM_PER_NODE": "2048"}, Allotment(memory_bytes=2 * GIB)),
        ({"SLURM_MEM_PER_NODE": "0"}, Allotment()),
        ({"SLURM_MEM_PER_CPU": "1024"}, Allotment()),
        (
            {"SLURM_MEM_PER_CPU": "1024", "SLURM_CPUS_ON_NODE": "3"},
            Allotment(cpus=3, memory_bytes=3 * GIB),
        ),
        ({"SLURM_JOB_END_TIME": "1764244800"}, Allotment(ends_s=1764244800)),
        ({"CUDA_VISIBLE_DEVICES": "2,3"}, Allotment(gpus="2,3")),
        ({"SLURM_JOB_ID": "7"}, Allotment(is_scheduled=True)),
        ({"CUDA_VISIBLE_DEVICES": ""}, Allotment(gpus="")),
        ({"NVIDIA_VISIBLE_DEVICES": "all"}, Allotment()),
        ({"NVIDIA_VISIBLE_DEVICES": "MIG-7"}, Allotment(gpus="MIG-7")),
        (
            {"NVIDIA_VISIBLE_DEVICES": "MIG-7", "CUDA_VISIBLE_DEVICES": "MIG-8"},
            Allotment(gpus="MIG-8"),
        ),
    ],
)
def test_an_environment_tells_what_was_given(environment: dict[str, str], told: Allotment) -> None:
    assert read_allotment(environment) == told
