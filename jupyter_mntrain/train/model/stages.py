"""Stages: builds those of one rank, with only their own weights in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.distributed.pipelining import PipelineStage

from jupyter_mntrain.recipe.layout import Layout
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.telemetry.progress import ProgressWriter, Tally, unwatched
from jupyter_mntrain.train.model.activations import keep_less
from jupyter_mntrain.train.model.decoder import (
    StageModule,
    materialize,
    meta_stage,
    model_directory,
)
from jupyter_mntrain.train.model.losses import choose_loss
from jupyter_mntrain.train.model.weights import load_weights, seeded_weights
from jupyter_mntrain.train.world import World

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def build_modules(
    recipe: Recipe,
    config: Any,
    layout: Layout,
    rank: int,
    device: torch.device,
    progress: ProgressWriter = unwatched,
) -> dict[int, StageModule]:
    """Build the stages of one rank, by index, initializing or reading only their own tensors.

    Raises:
        RecipeError: the model directory lacks a stage's tensors.
    """
    stages = {
        index: meta_stage(
            config,
            layout.stages[index],
            first=index == 0,
            last=index == layout.last_stage,
            dtype=DTYPES[recipe.model.dtype],
            attention=recipe.model.attention,
        )
        for index in layout.stages_of(rank)
    }
    size = sum(one.nbytes for stage in stages.values() for one in stage.weights().values())
    what = "making the weights" if recipe.model.path is None else "loading the model"
    tally = Tally(progress, what, size, "B")
    loss = choose_loss(recipe, config.vocab_size, device)
    for stage in stages.values():
        materialize(stage, _weights(recipe, config, stage.weights(), device, tally), device)
        stage.leaves_head = loss != "plain"
        keep_less(stage, recipe.memory, device)
    return stages


def make_stages(
    recipe: Recipe,
    config: Any,
    layout: Layout,
    world: World,
    modules: Mapping[int, StageModule],
    shape: tuple[int, int],
    *,
    trains: bool = True,
) -> list[PipelineStage]:
    """Wrap a rank's modules in torch's :class:`PipelineStage`.

    Shapes are given, because torch would otherwise run an extra forward and backward to infer them.

    Args:
        world: the ranks of the pipeline.
        shape: sequences per microbatch, and their length.
        trains: whether activations require gradients.
    """
    dtype = DTYPES[recipe.model.dtype]
    ids = torch.empty(shape, dtype=torch.int64, device="meta")
    hidden, logits = (
        torch.empty((*shape, width), dtype=dtype, device="meta", requires_grad=trains)
        for width in (config.hidden_size, config.vocab_size)
    )
    return [
        PipelineStage(
            module,
            index,
            len(layout.stages),
            world.device,
            input_args=ids if module.first else hidden,
            output_args=logits if module.last and not module.leaves_head else hidden,
            group=world.group,
        )
        for index, module in modules.items()
    ]


def _weights(
    recipe: Recipe,
    config: Any,
    parameters: Mapping[str, torch.Tensor],
    device: torch.device,
    tally: Tally,
) -> dict[str, torch.Tensor]:
    if recipe.model.path is not None:
        directory = model_directory(recipe.model)
        return load_weights(directory, parameters, device=device, tally=tally)
    return seeded_weights(
        parameters,
        seed=recipe.train.seed,
        deviation=config.initializer_range,
        tied=config.tie_word_embeddings,
        device=device,
        tally=tally,
    )
