"""Whole weights: those of a checkpoint's model, whether it holds them or adapters beside others."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch

from jupyter_mntrain.launch.checkpoints.directory import CheckpointDirectory
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.families.directories import CONFIG
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.telemetry.progress import ProgressWriter, unwatched
from jupyter_mntrain.train.checkpoint.resuming import FoundCheckpoint, load
from jupyter_mntrain.train.model.adapters import (
    BASE,
    FIRST,
    SECOND,
    is_adapter,
    merged,
    trained_whole,
)
from jupyter_mntrain.train.model.decoder import StageModule
from jupyter_mntrain.train.model.stages import base_weights
from jupyter_mntrain.train.world import World


def load_whole(
    world: World,
    directory: CheckpointDirectory,
    found: FoundCheckpoint,
    stage: StageModule | None,
    names: Collection[str],
    recipe: Recipe,
    progress: ProgressWriter = unwatched,
) -> dict[str, torch.Tensor]:
    """Load weights by their names in the whole model, in host memory. Collective.

    Where adapters were trained, the recipe's own weights are read but for those that were trained
    whole, and the checkpoint's adapters merged into them.

    Args:
        stage: the whole model, on the meta device; not needed by a rank that wants no weights.
        names: of the weights that this rank wants.
        recipe: the checkpoint's.

    Returns:
        The weights that were found.

    Raises:
        RecipeError: a shard is damaged, or the recipe's weights cannot be read.
    """
    wanted = list(names)
    if recipe.trains_adapters and names and stage is not None:
        whole = trained_whole(recipe.adapters, stage.causal.config)
        layers = [name.removesuffix(BASE) for name in names if name.endswith(BASE)]
        wanted = [f"{layer}{ending}" for layer in layers for ending in (FIRST, SECOND)]
        wanted += [name for name in names if name in whole]
    loaded = load(world, directory, found, [f"model/{one}" for one in wanted], progress=progress)
    weights = {name.removeprefix("model/"): one for name, one in loaded.items()}
    if recipe.trains_adapters and names and stage is not None:
        config, section, family = stage.causal.config, recipe.adapters, stage.family
        frozen = [name for name in names if name not in weights]
        weights |= base_weights(recipe, config, stage, torch.device("cpu"), frozen)
        plain = [name for name in weights if not is_adapter(name)]
        weights = {name: merged(weights, name, section, family) for name in plain}
    if stage is not None:
        _refuse_other_shapes(stage, weights, directory)
    return weights


def _refuse_other_shapes(
    stage: StageModule, weights: Mapping[str, torch.Tensor], directory: CheckpointDirectory
) -> None:
    """Refuse a config, by which the model was made, that is not the checkpoint's."""
    for name, like in stage.weights().items():
        if name in weights and weights[name].shape != like.shape:
            found, said = tuple(weights[name].shape), tuple(like.shape)
            cause = f"{name} of the checkpoint in {directory.path} is {found}, and the {CONFIG} "
            cause += f"beside it says {said}"
            raise RecipeError(cause, fix="resume the job: it writes the config again")
