"""Adapters: adds peft's LoRA layers to a stage, initializes them, and merges them into its weights.

The weights may be in 4 bits (QLoRA). Embedding and head may be trained in full alongside adapters.

That of ``X.weight`` is ``X.lora_A.weight`` (rank, in) and ``X.lora_B.weight`` (out, rank), as in
peft's files.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from jupyter_mntrain.families import Family, family_of
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.quantities import by_size
from jupyter_mntrain.recipe.sections import (
    NF4_BLOCK,
    AdaptersSection,
    End,
    LinearShape,
    Recipe,
    adapted,
    check_base,
    nf4_scale_block,
)
from jupyter_mntrain.train.model.decoder import ADAPTER, HEAD, StageModule
from jupyter_mntrain.train.model.weights import PART_BYTES, generator_of

Weights = Callable[[Mapping[str, torch.Tensor]], dict[str, torch.Tensor]]
"""Makes the tensors of a stage, by name, from others of their shape and dtype."""

BASE, FIRST, SECOND = ".weight", ".lora_A.weight", ".lora_B.weight"
"""Endings of the names of a linear layer's weight and of its adapter's two matrices."""


def is_adapter(name: str) -> bool:
    """Whether a parameter is part of an adapter, by its name in the whole model."""
    return name.endswith((FIRST, SECOND))


def trained_whole(section: AdaptersSection, config: Any) -> dict[str, str]:
    """Return embedding and head, if they are trained alongside adapters.

    They are the modules, by the names of their weights; a tied one has both names.

    Args:
        config: the model's.
    """
    family, is_tied = family_of(config.to_dict()), bool(config.tie_word_embeddings)
    names: dict[End, str] = {"embedding": family.embedding_weight, "head": HEAD}
    chosen = (name for end, name in names.items() if section.trains(end, is_tied=is_tied))
    return {name: name.removesuffix(BASE) for name in chosen}


def add_adapters(stage: StageModule, recipe: Recipe) -> None:
    """Freeze a stage's weights and add adapters to its linear layers.

    Weights that are trained in full are not frozen.

    The first matrix is uniform, as peft draws it, but by a generator of its own for each name: it
    does not depend on how the model is split. The second is zero.

    Raises:
        RecipeError: the adapters do not fit the model, or peft is not installed, or not next to
            this torchao.
    """
    config = lora_config(recipe.adapters, linears_among(stage.weights(), stage.family))
    config.fan_in_fan_out = stage.family.transposed
    from peft import inject_adapter_in_model

    with torch.random.fork_rng(devices=[]):  # what peft draws is replaced
        try:
            inject_adapter_in_model(config, stage.causal, ADAPTER)
        except ImportError as error:  # it looks for packages only now
            cause = f"adapters.rank = {recipe.adapters.rank}: peft refuses a package: {error}"
            fix = "pip install --upgrade peft torchao on every node, or use rank = 0"
            raise RecipeError(cause, fix=fix) from error
    whole = trained_whole(recipe.adapters, stage.causal.config)
    for name, one in stage.weights().items():
        if name.endswith(FIRST):
            one.data.copy_(first_values(name, one, recipe.train.seed))
        one.requires_grad = is_adapter(name) or name in whole


def first_values(name: str, like: torch.Tensor, seed: int) -> torch.Tensor:
    """Return the initial first matrix of an adapter, (rank, in): uniform within 1/√in."""
    drawn = torch.rand(like.shape, generator=generator_of(seed, name))
    return (2 * drawn - 1) / math.sqrt(like.shape[1])


def lora_config(section: AdaptersSection, linears: Mapping[str, LinearShape]) -> Any:
    """Return peft's settings for the adapters, as they are used and saved.

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
    """Return the shapes of the linear layers in a decoder's layers, by their names in a layer.

    Args:
        weights: by name in the whole model.
    """
    found: dict[str, LinearShape] = {}
    for name, one in weights.items():
        inner = _in_layer(name, family)
        if inner is not None and one.ndim == 2 and not is_adapter(name):
            found[inner] = _shape(one, family)
    return found


def _in_layer(name: str, family: Family) -> str | None:
    """Return the module in a layer that a weight belongs to, like ``mlp.up_proj``, if any."""
    _, is_in_a_layer, rest = name.partition(f"{family.layers}.")
    return rest.partition(".")[2].removesuffix(BASE) if is_in_a_layer else None


def adapted_in(stage: StageModule) -> tuple[LinearShape, ...]:
    """Return the shapes of a stage's linear layers that have an adapter."""
    weights = stage.weights()
    names = (name for name in weights if name.endswith(FIRST))
    return tuple(_shape(weights[one.removesuffix(FIRST) + BASE], stage.family) for one in names)


def whole_in(stage: StageModule) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of a stage's weights that are trained in full alongside adapters."""
    return tuple(tuple(one.shape) for name, one in stage.trained().items() if not is_adapter(name))


@torch.no_grad()
def merged(
    weights: Mapping[str, torch.Tensor], name: str, section: AdaptersSection, family: Family
) -> torch.Tensor:
    """Return a weight with its adapter added, if it has one: in place, unless it is in 4 bits.

    Args:
        weights: by name, with both matrices of an adapter and the weight next to it. That may be
            in 4 bits; else it is rounded to them first, as it was while the adapter was trained.
    """
    base, layer = weights[name], name.removesuffix(BASE)
    if layer + FIRST not in weights:
        return base
    if section.quantizes:
        # In host memory: all of a stage may not fit on its GPU.
        base = _whole(base if is_quantized(base) else quantized(base)).cpu()
    first, second = (weights[layer + one].to(base.device).float() for one in (FIRST, SECOND))
    # In float32, and rounded once.
    product = (second @ first).T if family.transposed else second @ first
    return base.copy_(base.float().add_(product, alpha=section.scale))


def quantized_weights(
    make: Weights, stage: StageModule, section: AdaptersSection
) -> dict[str, torch.Tensor]:
    """Make a stage's weights, those with adapters in 4 bits: only a few are unquantized at a time.

    Args:
        make: makes some of them.
        stage: on the meta device.

    Raises:
        RecipeError: the weights cannot be quantized, or torchao is not installed.
    """
    family, empty = stage.family, stage.weights()
    check_base(section, stage.causal.config.model_type, transposed=family.transposed)
    inner = adapted(section, linears_among(empty, family))
    names = [name for name in empty if _in_layer(name, family) in inner]
    beside = {name: one for name, one in empty.items() if name not in names}
    made = make(beside)
    for part in by_size(names, lambda name: empty[name].nbytes, PART_BYTES):
        whole = make({name: empty[name] for name in part})
        made |= {name: quantized(whole.pop(name)) for name in part}
    return made


def quantized(weight: torch.Tensor) -> torch.Tensor:
    """Quantize a linear layer's weight to NF4, which computes in its original dtype.

    Raises:
        RecipeError: torchao is not installed.
    """
    try:
        try:
            from torchao.quantization import to_nf4
        except ImportError:  # before torchao 0.18
            from torchao.dtypes import to_nf4
    except ImportError as error:
        fix = "pip install 'jupyter-mntrain[memory]' on every node, or leave quantize_base out"
        cause = f'adapters.quantize_base = "nf4": no torchao: {error}'
        raise RecipeError(cause, fix=fix) from error
    rows, columns = weight.shape
    made: torch.Tensor = to_nf4(weight.detach(), NF4_BLOCK, nf4_scale_block((rows, columns)))
    return made


def is_quantized(weight: torch.Tensor) -> bool:
    """Whether a weight is in 4 bits: a tensor without memory of its own that wraps others."""
    return hasattr(weight, "get_original_weight")


def _whole(weight: Any) -> torch.Tensor:
    made: torch.Tensor = weight.get_original_weight()
    return made


def _shape(weight: torch.Tensor, family: Family) -> LinearShape:
    """Return the numbers of outputs and inputs of a linear layer's weight."""
    rows, columns = weight.shape
    return (columns, rows) if family.transposed else (rows, columns)


def _shortest(name: str, chosen: list[str], linears: Mapping[str, LinearShape]) -> str:
    """Return the last part of a layer's name, as other tools expect, if it is unambiguous."""
    last = name.rpartition(".")[2]
    alike = [one for one in linears if one.rpartition(".")[2] == last]
    return last if all(one in chosen for one in alike) else name
