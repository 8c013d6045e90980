"""Choosing: ranks agree on the settings that a recipe leaves to the GPUs, and check that they work.

A launch has chosen already, and passes it on. Ranks that were started without one, as by torchrun
or SLURM, choose by the same rules; the weights of a checkpoint that they go on from decide first.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress

import msgspec
import torch
import torch.distributed as dist

from jupyter_mntrain.launch.checkpoints.directory import CheckpointDirectory
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.environment import RESUME_FROM_VARIABLE
from jupyter_mntrain.model.whereabouts import in_home
from jupyter_mntrain.recipe.devices import refuse_unable
from jupyter_mntrain.recipe.fitting import fit
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.recipe.stored import as_trained, values_of, without_plan
from jupyter_mntrain.train.checkpoint.places import copies_of, directory_of
from jupyter_mntrain.train.own_tools import own_seat
from jupyter_mntrain.train.world import World, gathered


class _Trained(Record, frozen=True):
    """The settings of the newest checkpoint that a rank sees, and its age."""

    age: tuple[int, int]
    settings: dict[str, str]


def resolve_automatic(
    recipe: Recipe,
    world: World,
    chosen: Mapping[str, str] | None,
    *,
    environment: Mapping[str, str] = os.environ,
    say: Callable[[str], None],
) -> Recipe:
    """Return the recipe with a value for every setting that it leaves to the GPUs. Collective.

    Also sets how this rank's GPU multiplies float32 matrices.

    Args:
        chosen: by the launch; ``None`` without one.
        environment: says where checkpoints are.
        say: prints a line to the job's log.

    Raises:
        RecipeError: the same on every rank: a GPU or node lacks what the recipe needs.
    """
    told = gathered(
        world, (own_seat(world.device, world.host, environment), _newest(recipe, environment))
    )
    # No rank may exit before all have received this: see agree().
    dist.all_reduce(torch.zeros(1))
    saved = [one for _, one in told if one is not None]
    kept = max(saved, key=lambda one: one.age).settings if saved and not chosen else {}
    found = fit(recipe, [seat for seat, _ in told], {**kept, **(chosen or {})})
    refuse_unable(found.recipe, found.seats, is_resumed=bool(saved))
    if found.said and world.is_head:
        say(found.said)
    _allow_tf32(found.recipe, world.device)
    return without_plan(found.recipe)


def _allow_tf32(recipe: Recipe, device: torch.device) -> None:
    """Set how the GPU multiplies float32 matrices.

    By this function only: torch 2.9 and newer raise an error where it is mixed with
    ``torch.backends.cuda.matmul.fp32_precision``, and Inductor reads this one.
    """
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high" if recipe.train.tf32 else "highest")


def _newest(recipe: Recipe, environment: Mapping[str, str]) -> _Trained | None:
    """Return the newest checkpoint that the run may continue, here or on durable storage."""
    origin = environment.get(RESUME_FROM_VARIABLE)
    own, copies = directory_of(recipe, environment), copies_of(recipe, environment)
    for path in (own, copies, in_home(origin) if origin else None):
        found = [] if path is None else list(CheckpointDirectory(path).manifests().values())
        newest = max(found, key=lambda one: one.age, default=None)
        if newest is not None and newest.recipe is not None:
            with suppress(msgspec.ValidationError):  # another version's settings
                trained = as_trained(msgspec.convert(newest.recipe, Recipe))
                return _Trained(newest.age, values_of(trained))
    return None
