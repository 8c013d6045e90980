"""Held memory: what a rank will hold, said and checked before its first step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import psutil

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.layout import Layout
from jupyter_mntrain.recipe.memory import MemoryEstimate, StageShape, memory_estimate
from jupyter_mntrain.recipe.rank_memory import gpu_overhead
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.train.model.decoder import model_shape
from jupyter_mntrain.train.world import World, agree, gathered


def check_memory(
    recipe: Recipe,
    config: Any,
    layout: Layout,
    place: int,
    world: World,
    stages: Sequence[StageShape],
) -> Iterator[str]:
    """Yield lines about this rank's memory, then check that of its node. Collective.

    Args:
        place: of this rank in its pipeline.
        stages: this rank's.

    Raises:
        RecipeError: the node has no room for what its ranks offload; the same on every rank.
    """
    estimate = memory_estimate(model_shape(config), recipe, stages)
    line = f"rank {world.rank} memory: {estimate}"
    is_on_gpu = world.device.type == "cuda"
    if is_on_gpu:
        is_tied = bool(config.tie_word_embeddings)
        line += f"; besides, {gpu_overhead(recipe, layout, place, estimate, is_tied=is_tied)}"
    yield line
    offloads = recipe.memory.offload_activations
    if offloads and not is_on_gpu:
        yield f"rank {world.rank} memory: nothing to offload on a CPU"
    if offloads:
        _refuse_full_host(world, estimate, "memory.offload_activations = true")
    elif recipe.data_parallel.meets_rarely:
        given = f"data_parallel.sync_every = {recipe.data_parallel.sync_every}"
        _refuse_full_host(world, estimate, given)


def _refuse_full_host(world: World, estimate: MemoryEstimate, given: str) -> None:
    """Agree that each node has room: otherwise the kernel would kill one of its processes."""
    hosts = gathered(world, (world.host, estimate.host))
    needed, free = sum(size for host, size in hosts if host == world.host), _available_bytes()
    error = None
    if needed > free:
        cause = f"{given}: the ranks of this node offload "
        cause += f"{needed / 1e9:.1f} GB to host memory, and {free / 1e9:.1f} GB are free"
        fix = 'use memory.checkpointing = "full" to keep less, smaller microbatches, or leave '
        error = RecipeError(cause, fix=f"{fix}{given.partition(' ')[0]} out")
    agree(world, error)


def too_large(size_bytes: int) -> RecipeError | None:
    """Why a model is not loaded to this node's memory: the kernel would kill its process."""
    free = _available_bytes()
    if size_bytes <= free:
        return None
    return RecipeError(
        f"the model has {size_bytes / 1e9:.1f} GB, and {free / 1e9:.1f} GB of memory are free",
        fix="end other programs, or use a node with more memory",
    )


def _available_bytes() -> int:
    return psutil.virtual_memory().available
