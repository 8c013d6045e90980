"""Replicas that sync rarely: what they keep in memory."""

from __future__ import annotations

import msgspec

from jupyter_mntrain.recipe.memory import memory_estimate
from jupyter_mntrain.recipe.sections import DataParallelSection
from tests.recipe.test_memory import built


def test_what_is_kept_between_syncs_is_on_the_host() -> None:
    usual, shape, module, stage = built("model.preset=llama-tiny", "model.dtype=bfloat16")
    sections = [
        DataParallelSection(replicas=2),
        DataParallelSection(replicas=2, sync_every=5),
        DataParallelSection(replicas=2, sync_every=5, outer_momentum=0.0),
    ]
    found = [
        memory_estimate(shape, msgspec.structs.replace(usual, data_parallel=one), [stage])
        for one in sections
    ]
    values = sum(one.numel() for one in module.weights().values())
    assert [one.host for one in found] == [0, 8 * values, 4 * values]
    assert len({one.total for one in found}) == 1, "and not on the GPU"
