"""Memory fit: what a GPU has for a job, and what is counted once."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_mntrain.model.records.node import Availability, GpuProcess
from jupyter_mntrain.recipe.memory import CPU_OVERHEAD, MemoryEstimate
from jupyter_mntrain.workload.memory_fit import RankMemory, memory_notes, offered_memory
from tests.standin.nodes import gpu, node

GIB = 1 << 30
ADA = GpuProcess(pid=7, user="ada")


def test_what_a_job_gets_of_a_gpu_is_what_nobody_holds() -> None:
    held = {"memory_used_bytes": 3 * GIB, "memory_total_bytes": 24 * GIB}
    cards = (gpu(0, **held), gpu(1, **held, processes=(ADA,)), gpu(2, **held, processes=(ADA,)))
    there = node("a", gpus=cards, leased={"j-00000001": (2,)})
    assert offered_memory(there) == {0: 21 * GIB, 1: 24 * GIB, 2: 24 * GIB}, (
        "it waits for their end"
    )
    assert offered_memory(there, shares=True) == {0: 21 * GIB, 1: 21 * GIB, 2: 24 * GIB}
    some = msgspec.structs.replace(there, availability=Availability(memory_bytes=20 * GIB))
    assert set(offered_memory(some).values()) == {20 * GIB}


@pytest.mark.parametrize(
    ("activations", "offloaded", "is_unified", "is_short"),
    [
        (60, 0, True, False),
        (60, 30, True, False),
        (60, 50, True, True),
        (60, 50, False, False),
        (60, 101, False, True),
        (101, 0, True, True),
        (101, 50, True, True),
    ],
)
def test_memory_that_gpu_and_host_share_is_counted_once(
    activations: int, offloaded: int, is_unified: bool, is_short: bool
) -> None:
    estimate = MemoryEstimate(
        weights=0, gradients=0, optimizer=0, activations=activations * GIB, host=offloaded * GIB
    )
    one = RankMemory(
        rank=0,
        node="spark",
        estimate=estimate,
        overhead=CPU_OVERHEAD,
        gpu_bytes=100 * GIB,
        host_bytes=100 * GIB,
        is_unified=is_unified,
    )
    assert len(memory_notes([one])) == is_short, "said once"
