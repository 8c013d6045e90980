"""Held memory: what a rank will hold in memory, reported and checked before the first step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import psutil

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.layout import Layout
from jupyter_mntrain.recipe.memory import CPU_OVERHEAD, StageShape, gpu_overhead, memory_estimate
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
    """Yield lines about this rank's memory.

    Args:
        place: of this rank in its pipeline.
        stages: this rank's.
    """
    estimate = memory_estimate(model_shape(config), recipe, stages)
    line = f"rank {world.rank} memory: {estimate}"
    is_on_gpu = world.device.type == "cuda"
    is_tied = bool(config.tie_word_embeddings)
    on_gpu = gpu_overhead(recipe, layout, place, estimate, is_tied=is_tied)
    yield f"{line}; besides, {on_gpu if is_on_gpu else CPU_OVERHEAD}"
    if recipe.memory.offload_activations and not is_on_gpu:
        yield f"rank {world.rank} memory: nothing to offload on a CPU"


def refuse_full_host(
    recipe: Recipe, config: Any, world: World, stages: Sequence[StageShape]
) -> None:
    """Check that each node has room for what its ranks keep in host memory. Collective.

    Otherwise the kernel would kill one of its processes.

    Args:
        stages: this rank's.

    Raises:
        RecipeError: a node has not; the same on every rank.
    """
    offloads, meets = recipe.memory.offload_activations, recipe.data_parallel.syncs_rarely
    if not (offloads or meets):
        return
    estimate = memory_estimate(model_shape(config), recipe, stages)
    hosts = gathered(world, (world.host, estimate.host))
    needed, free = sum(size for host, size in hosts if host == world.host), _available_bytes()
    error = None
    if needed > free:
        kept, fixes = [], []
        if offloads:
            kept.append("offloaded activations (memory.offload_activations)")
            fixes.append('memory.checkpointing = "full", or smaller microbatches')
        if meets:
            kept.append("weights and momentum of the last sync (data_parallel.sync_every)")
            fixes.append("adapters, or more stages in each replica")
        cause = f"the ranks of this node keep {needed / 1e9:.1f} GB in host memory, "
        cause += f"{' and '.join(kept)}, and {free / 1e9:.1f} GB are free"
        error = RecipeError(cause, fix=f"use {', or '.join(fixes)}, or a node with more memory")
    agree(world, error)


def too_large(size_bytes: int) -> RecipeError | None:
    """Return an error if a model does not fit into this node's memory."""
    free = _available_bytes()
    if size_bytes <= free:
        return None
    return RecipeError(
        f"the model has {size_bytes / 1e9:.1f} GB, and {free / 1e9:.1f} GB of memory are free",
        fix="end other programs, or use a node with more memory",
    )


def _available_bytes() -> int:
    return psutil.virtual_memory().available
