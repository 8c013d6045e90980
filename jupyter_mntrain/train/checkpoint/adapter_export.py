"""Adapter export: writes trained adapters, and what was trained whole beside them, as peft's two
files, on the head's node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from jupyter_mntrain.recipe.families import family_of
from jupyter_mntrain.recipe.parts.adapters import LinearShape
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.train.checkpoint.copies.neighbors import (
    refuse_to_fill,
    send_file,
    sync,
    take_file,
)
from jupyter_mntrain.train.model.adapters import (
    is_adapter,
    linears_among,
    lora_config,
    trained_whole,
)
from jupyter_mntrain.train.world import World, gathered

FOLDER = "adapter"
"""In the model's directory: beside the merged weights, transformers would add the adapter again."""
WEIGHTS = "adapter_model.safetensors"
_PREFIX = "base_model.model."
"""Of names in peft's files: a PeftModel wraps a LoraModel wraps the model."""


def write_adapter(
    folder: Path,
    weights: Mapping[str, torch.Tensor],
    config: Any,
    recipe: Recipe,
    world: World,
) -> str | None:
    """Write the adapters of all ranks as one. Collective.

    Args:
        folder: the model's, on this node; may be shared with the others.
        weights: this rank's, by name, with its adapters; a tied one only once in the whole model.
        config: the model's.

    Returns:
        Why it failed on this rank, or ``None``.
    """
    directory = folder / FOLDER
    own = directory / _part(world.rank)
    whole = trained_whole(recipe.adapters, config)
    adapters = {name: one for name, one in weights.items() if is_adapter(name) or name in whole}
    # Those of a replica are written by the first one.
    problem = _write(own, adapters) if adapters else None
    have = gathered(world, problem is None and bool(adapters))
    senders = [rank for rank, has_some in enumerate(have) if has_some and rank]
    # Every rank uses the same order, so two ranks never wait for each other.
    for rank in senders:
        if world.rank == rank:
            send_file(own, 0)
        elif world.is_head:
            failed = take_file(lambda: directory, _part(rank), rank)
            problem = problem or failed
    if world.is_head and problem is None:
        linears = linears_among(weights, family_of(config.to_dict()))
        problem = _join(directory, [0, *senders], linears, config, recipe)
    gathered(world, None)  # the head has read what others wrote into a shared directory
    own.unlink(missing_ok=True)
    with suppress(OSError):  # not empty where it is the head's
        directory.rmdir()
    return problem


def _part(rank: int) -> str:
    return f"part-{rank}.safetensors"


def _write(path: Path, tensors: Mapping[str, torch.Tensor]) -> str | None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        refuse_to_fill(path.parent, 2 * sum(one.nbytes for one in tensors.values()))
        named = {f"{_PREFIX}{name}": one.detach().contiguous() for name, one in tensors.items()}
        save_file(named, path, metadata={"format": "pt"})
    except Exception as error:  # noqa: BLE001 - all ranks must learn of any error
        return str(error) or type(error).__name__
    return None


def _join(
    directory: Path,
    ranks: Sequence[int],
    linears: Mapping[str, LinearShape],
    model: Any,
    recipe: Recipe,
) -> str | None:
    try:
        tensors: dict[str, torch.Tensor] = {}
        for rank in ranks:
            path = directory / _part(rank)
            tensors |= load_file(path)
            path.unlink()
        whole = trained_whole(recipe.adapters, model)
        held = [f"{_PREFIX}{name}" for name in whole]
        for name in held:  # peft expects a tied weight under both of its names
            if name not in tensors:
                tensors[name] = next(tensors[one] for one in held if one in tensors).clone()
        save_file(tensors, directory / WEIGHTS, metadata={"format": "pt"})
        sync(directory / WEIGHTS)
        config = lora_config(recipe.adapters, linears)
        config.base_model_name_or_path = recipe.model.path
        config.inference_mode = True
        config.fan_in_fan_out = family_of(model.to_dict()).transposed
        if whole:
            config.modules_to_save = [one.rpartition(".")[2] for one in whole.values()]
            config.ensure_weight_tying = bool(model.tie_word_embeddings)
        config.save_pretrained(directory)
    except Exception as error:  # noqa: BLE001 - all ranks must learn of any error
        return str(error) or type(error).__name__
    return None
