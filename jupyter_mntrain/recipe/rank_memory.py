"""Memory forecast: estimates what each rank of a recipe will hold. Pure; imports no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jupyter_mntrain.launch.files.hub_names import hub_copy, hub_id, snapshot
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.whereabouts import in_home
from jupyter_mntrain.recipe.devices.memory_estimate import MemoryEstimate, shown_bytes
from jupyter_mntrain.recipe.families import (
    families,
    family_of,
    linears,
    normal,
    parameters,
    shape_of,
    wrong_count,
)
from jupyter_mntrain.recipe.families.directories import CONFIG, read_object, refuse_directory
from jupyter_mntrain.recipe.layout import Layout, lay_out
from jupyter_mntrain.recipe.memory import StageShape, fitting_loss, memory_estimate
from jupyter_mntrain.recipe.orders.counts import counts_without_links
from jupyter_mntrain.recipe.parse import check, preset_config
from jupyter_mntrain.recipe.parts.adapters import LinearShape, adapted, adapter_shapes, check_base
from jupyter_mntrain.recipe.schedules import BATCHED, KINDS, ScheduleName
from jupyter_mntrain.recipe.sections import Recipe

Config = Mapping[str, Any]
"""Fields of a Hugging Face ``config.json``."""

_KEEP_ALL: frozenset[ScheduleName] = frozenset({"gpipe", "looped-bfs"})


CUDA_BYTES = 500_000_000
"""CUDA's context and torch's kernels: 300 to 500 MB, depending on the card and its driver."""

NCCL_BUFFER_BYTES = 4 << 20
"""NCCL's documented default of ``NCCL_BUFFSIZE``, for each channel and direction."""

GROUP_CHANNELS, PAIR_CHANNELS = 16, 2
"""Channels that NCCL opens in a group over NVLink, and between two ranks; fewer over sockets."""

RESERVE_SHARE = 0.05
"""What torch's allocator keeps beyond its tensors, as a share of them. Not measured."""


class GpuOverhead(Record, frozen=True):
    """Bytes that a rank takes of its GPU beside its tensors, roughly."""

    cuda: int
    nccl: int
    reserve: int
    """Of torch's allocator, which holds more than its tensors."""

    @property
    def total(self) -> int:
        return self.cuda + self.nccl + self.reserve

    def __str__(self) -> str:
        parts = {"CUDA": self.cuda, "NCCL": self.nccl, "reserve": self.reserve}
        return " + ".join(f"{name} {shown_bytes(size)}" for name, size in parts.items() if size)


def gpu_overhead(
    recipe: Recipe, layout: Layout, place: int, estimate: MemoryEstimate, *, is_tied: bool
) -> GpuOverhead:
    """Estimate what a rank takes of its GPU beside its tensors.

    Args:
        place: of the rank in its pipeline.
        estimate: of its tensors.
    """
    parallel = recipe.data_parallel
    ranks = layout.world_size * parallel.width
    groups = (ranks > 1) + (parallel.replicas > 1) + (parallel.shards > 1)
    groups += parallel.width > 1 and layout.world_size > 1
    groups += parallel.meets_rarely and parallel.shards > 1
    # One communicator per direction with each neighbor, where there are any.
    is_batched = recipe.schedule in BATCHED
    trains_tied = is_tied and recipe.trains_tied
    pairs = 0 if is_batched else 2 * len(layout.neighbors(place, tied=trains_tied))
    channels = groups * GROUP_CHANNELS + pairs * PAIR_CHANNELS
    return GpuOverhead(
        cuda=CUDA_BYTES,
        nccl=2 * NCCL_BUFFER_BYTES * channels,
        reserve=round(RESERVE_SHARE * estimate.total),
    )


def model_config(recipe: Recipe) -> Config | None:
    """Return the config of the recipe's model; ``None`` if its directory is not on this machine."""
    if recipe.model.path is None:
        size = recipe.data.vocabulary_size + len(recipe.tokens.add)
        return {**preset_config(recipe.model), "vocab_size": size}
    try:
        config = normal(read_object(_here(recipe.model.path) / CONFIG))
    except RecipeError:
        return None
    if str(config.get("model_type")) not in families() or wrong_count(config) is not None:
        return None
    return {**config, "vocab_size": config["vocab_size"] + len(recipe.tokens.add)}


def refuse_model_here(recipe: Recipe) -> None:
    """Raise what the trainer would say of the recipe's model, if its config is on this machine.

    Raises:
        RecipeError: the trainer cannot use it.
    """
    path = recipe.model.path
    if path is not None and (directory := _here(path)).is_dir():
        refuse_directory(directory, path)


def _here(path: str) -> Path:
    """Where a model is on this machine, if it is: of one of the hub, at least its config."""
    model = hub_copy(path) or hub_id(path)
    directory = in_home(path)
    cached = None if model is None or directory.exists() else snapshot(model)
    return cached or directory


def forecast(recipe: Recipe, config: Config, ranks: int) -> list[MemoryEstimate]:
    """Estimate each rank's memory on GPUs, by its index in a pipeline.

    Slow links may need more microbatches in flight than are counted here.

    Args:
        ranks: total ranks of all pipelines.

    Raises:
        RecipeError: the recipe cannot run on this number of ranks.
    """
    shape, is_tied = shape_of(config), bool(config.get("tie_word_embeddings"))
    check(recipe, ranks, layers=shape.layers, is_tied=is_tied)
    layout = lay_out(recipe, ranks, shape.layers)
    return [place_forecast(recipe, config, layout, place) for place in range(layout.world_size)]


def place_forecast(recipe: Recipe, config: Config, layout: Layout, place: int) -> MemoryEstimate:
    """Like :func:`forecast`, of one rank of a pipeline and without its check."""
    stages = [_stage(recipe, config, layout, index) for index in layout.stages_of(place)]
    return memory_estimate(shape_of(config), recipe, stages)


def _stage(recipe: Recipe, config: Config, layout: Layout, index: int) -> StageShape:
    count = len(layout.stages)
    microbatches, ahead, kept_back = recipe.microbatches, count - index, 0
    if KINDS[recipe.schedule].is_eager:
        counts = counts_without_links(recipe, count)
        ahead, kept_back = counts.ahead[index], counts.kept_back[index]
    elif recipe.schedule in _KEEP_ALL:
        ahead = microbatches
    is_first, is_last = index == 0, index == layout.last_stage
    layers = len(layout.stages[index])
    return StageShape(
        parameters=parameters(config, layers, is_first=is_first, is_last=is_last),
        adapted=adapted_linears(recipe, config) * layers if recipe.trains_adapters else None,
        whole=_trained_whole(recipe, config, is_first=is_first, is_last=is_last),
        trains_head=is_last and trains_head(recipe, config),
        layers=layers,
        has_first=is_first,
        has_last=is_last,
        in_flight=min(ahead, microbatches),
        loss=fitting_loss(recipe, config["vocab_size"]),
        offloads=recipe.memory.offload_activations,
        kept_back=kept_back if count > 1 else 0,
    )


def adapted_linears(recipe: Recipe, config: Config) -> tuple[LinearShape, ...]:
    """Return the shapes of a layer's linear layers that have an adapter.

    Raises:
        RecipeError: the adapters do not fit the model.
    """
    check_base(recipe.adapters, config["model_type"], transposed=family_of(config).transposed)
    known = linears(config)
    return tuple(known[name] for name in adapted(recipe.adapters, known))


def adapter_values(recipe: Recipe, config: Config) -> int | None:
    """Return the values of a layer's adapters; ``None`` if all weights are trained."""
    if not recipe.trains_adapters:
        return None
    return recipe.adapters.rank * sum(map(sum, adapted_linears(recipe, config)))


def trains_head(recipe: Recipe, config: Config) -> bool:
    """Whether the output projection has gradients."""
    return recipe.adapters.trains("head", is_tied=bool(config.get("tie_word_embeddings")))


def _trained_whole(
    recipe: Recipe, config: Config, *, is_first: bool, is_last: bool
) -> tuple[tuple[int, ...], ...]:
    """Shapes of a stage's embedding and head that are trained in full beside adapters."""
    if not recipe.trains_adapters:
        return ()
    shape, is_tied = shape_of(config), bool(config.get("tie_word_embeddings"))
    is_shared = is_tied and is_first
    count = int(is_first and recipe.adapters.trains("embedding", is_tied=is_tied))
    count += is_last and not is_shared and trains_head(recipe, config)
    return ((shape.vocabulary_size, shape.hidden_size),) * count


def shown_adapters(recipe: Recipe, config: Config) -> tuple[str, ...]:
    """Return a line about the adapters of a model, if the recipe has some."""
    if not recipe.trains_adapters:
        return ()
    shape, section = shape_of(config), recipe.adapters
    everything = parameters(config, shape.layers, is_first=True, is_last=True)
    beside = shape.layers * (adapter_values(recipe, config) or 0)
    whole = _trained_whole(recipe, config, is_first=True, is_last=True)
    trained = beside + sum(map(math.prod, whole))
    share = trained / (beside + sum(map(math.prod, everything)))
    names = ", ".join(name.rpartition(".")[2] for name in adapted(section, linears(config)))
    line = f"adapters: {trained:,} parameters are trained, {share:.2%} of all: rank {section.rank}"
    line += f", alpha {section.chosen_alpha:g}, of {names}"
    if section.train_whole:
        line += f", and the whole {' and '.join(dict.fromkeys(section.train_whole))}"
    if section.quantizes:
        line += ", whose frozen weights are kept in 4 bits (NF4)"
    return (line,)


def trained_parameters(
    recipe: Recipe, config: Config, layers: int, *, is_first: bool, is_last: bool
) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of the parameters of a stage that have gradients: of adapters and of what
    is trained whole beside them, or all.
    """
    if not recipe.trains_adapters:
        return parameters(config, layers, is_first=is_first, is_last=is_last)
    rank = recipe.adapters.rank
    layer = (adapter_shapes(rank, one) for one in adapted_linears(recipe, config))
    beside = tuple(one for both in layer for one in both) * layers
    return beside + _trained_whole(recipe, config, is_first=is_first, is_last=is_last)
