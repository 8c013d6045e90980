"""Debugging: what ``--debug`` adds to a job to help find an error. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from jupyter_mntrain.model.records.job import JobSpec
from jupyter_mntrain.recipe.sections import Recipe

SETTINGS: Final = ("train.detect_anomaly=true", "train.deterministic=true")
"""Settings of a recipe."""

_BLOCKING: Final = "CUDA_LAUNCH_BLOCKING"
_VARIABLES: Final = {
    "NCCL_DEBUG": "INFO",
    "NCCL_DEBUG_SUBSYS": "INIT,BOOTSTRAP,ENV,NET,GRAPH",
    "TORCH_CPP_LOG_LEVEL": "INFO",
    "TORCH_DISTRIBUTED_DEBUG": "DETAIL",
    _BLOCKING: "1",
}


def with_debugging(spec: JobSpec, recipe: Recipe | None) -> JobSpec:
    """Add variables that make NCCL and torch log what they do; the job's own values win.

    Neighbors in a pipeline send to each other at the same time, each on a stream of its own. A rank
    that waits for every kernel would wait there for one who waits for it: no
    ``CUDA_LAUNCH_BLOCKING`` for a recipe with several ranks per pipeline.
    """
    is_pipeline = recipe is not None and recipe.pipeline_ranks(spec.world_size) > 1
    left_out = {*spec.from_environment, *([_BLOCKING] if is_pipeline else [])}
    added = {name: value for name, value in _VARIABLES.items() if name not in left_out}
    return msgspec.structs.replace(spec, environment={**added, **spec.environment})
