"""Adapters: peft's LoRA layers in a stage, their first values, and merging them into its weights.

That of ``X.weight`` is ``X.lora_A.weight`` (rank, in) and ``X.lora_B.weight`` (out, rank), as in
peft's files.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, MutableMapping
from typing import Any

import torch

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.families import Family
from jupyter_mntrain.recipe.parts.adapters import AdaptersSection, LinearShape, adapted
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.train.model.decoder import ADAPTER, StageModule
from jupyter_mntrain.train.model.weights import generator_of

BASE, FIRST, SECOND = ".weight", ".lora_A.weight", ".lora_B.weight"
"""Endings of the names of a linear layer's weight and of its adapter's two matrices."""


def is_adapter(name: str) -> bool:
    """Whether a parameter is part of an adapter, by its name in the whole model."""
    return name.endswith((FIRST, SECOND))


def add_adapters(stage: StageModule, recipe: Recipe) -> None:
    """Freeze a stage's weights, and put adapters beside its linear layers.

    The first matrix is uniform, as peft draws it, but by a generator of its own for each name: it
    does not depend on how the model is split. The second is zero.

    Raises:
        RecipeError: the adapters do not fit the model, or peft is not installed.
    """
    config = lora_config(recipe.adapters, linears_among(stage.weights(), stage.family))
    config.fan_in_fan_out = stage.family.transposed
    from peft import inject_adapter_in_model

    with torch.random.fork_rng(devices=[]):  # what peft draws is replaced
        inject_adapter_in_model(config, stage.causal, ADAPTER)
    for name, one in stage.weights().items():
        if name.endswith(FIRST):
            one.data.copy_(first_values(name, one, recipe.train.seed))
        one.requires_grad = is_adapter(name)


def first_values(name: str, like: torch.Tensor, seed: int) -> torch.Tensor:
    """What the first matrix of an adapter begins with, (rank, in): uniform within 1/√in."""
    drawn = torch.rand(like.shape, generator=generator_of(seed, name))
    return (2 * drawn - 1) / math.sqrt(like.shape[1])


def lora_config(section: AdaptersSection, linears: Mapping[str, LinearShape]) -> Any:
    """Return peft's settings of the adapters, as they are used and saved.

    Raises:
        RecipeError: the adapters do not fit the linear layers, or peft is not installed.
    """
    chosen = adapted(section, linears)
    try:
        from peft import LoraConfig
    except ImportError as error:
        fix = "pip install 'jupyter-mntrain[adapters]' on every node, or use rank = 0"
        raise RecipeError(f"adapters.rank = {section.rank}: no peft: {error}", fix=fix) from error
    alpha = section.chosen_alpha
    return LoraConfig(
        r=section.rank,
        lora_alpha=int(alpha) if alpha.is_integer() else alpha,
        lora_dropout=section.dropout,
        target_modules=sorted({_shortest(name, chosen, linears) for name in chosen}),
        task_type="CAUSAL_LM",
    )


def linears_among(weights: Mapping[str, torch.Tensor], family: Family) -> dict[str, LinearShape]:
    """Shapes of the linear layers in a decoder's layers, by their names in a layer.

    Args:
        weights: by name in the whole model.
    """
    found: dict[str, LinearShape] = {}
    for name, one in weights.items():
        _, is_in_a_layer, rest = name.partition(f"{family.layers}.")
        inner = rest.partition(".")[2].removesuffix(BASE)
        if is_in_a_layer and one.ndim == 2 and not is_adapter(name):
            found[inner] = _shape(one, family)
    return found


def adapted_in(stage: StageModule) -> tuple[LinearShape, ...]:
    """Shapes of a stage's linear layers that have an adapter."""
    weights = stage.weights()
    names = (name for name in weights if name.endswith(FIRST))
    return tuple(_shape(weights[one.removesuffix(FIRST) + BASE], stage.family) for one in names)


@torch.no_grad()
def merge_adapters(
    weights: MutableMapping[str, torch.Tensor], scale: float, family: Family
) -> None:
    """Add adapters to the weights beside them, in place, and remove them from ``weights``.

    Args:
        weights: by name, with both matrices of an adapter and the weight beside it.
        scale: of the adapters' outputs.
    """
    for name in [one for one in weights if one.endswith(FIRST)]:
        layer = name.removesuffix(FIRST)
        first, second = weights.pop(name), weights.pop(layer + SECOND)
        base = weights[layer + BASE]
        # In float32, and rounded once.
        product = second.to(base.device).float() @ first.to(base.device).float()
        product = product.T if family.transposed else product
        base.copy_(base.float().add_(product, alpha=scale))


def _shape(weight: torch.Tensor, family: Family) -> LinearShape:
    """Values that a linear layer gives, and that it takes."""
    rows, columns = weight.shape
    return (columns, rows) if family.transposed else (rows, columns)


def _shortest(name: str, chosen: list[str], linears: Mapping[str, LinearShape]) -> str:
    """The last part of a layer's name, as other tools expect, unless it means others, too."""
    last = name.rpartition(".")[2]
    alike = [one for one in linears if one.rpartition(".")[2] == last]
    return last if all(one in chosen for one in alike) else name
