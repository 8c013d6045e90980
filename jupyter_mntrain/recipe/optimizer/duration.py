"""Duration: how many optimizer steps the epochs of a recipe are. Pure."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

from msgspec.structs import replace

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.combinations import check_duration
from jupyter_mntrain.recipe.parts.results import MOST_STEPS
from jupyter_mntrain.recipe.sections import Recipe


def with_steps(recipe: Recipe, sequences: int) -> Recipe:
    """The same recipe with the steps that its epochs take; as it is if it gives steps.

    Batches go on from one epoch into the next, so only the last one may begin another epoch.

    Args:
        sequences: that are trained on in an epoch: of several sources, those of all.

    Raises:
        RecipeError: it is too many steps, or fewer than the learning rate needs.
    """
    epochs = recipe.train.epochs
    if epochs is None:
        return recipe
    # As it was written: 0.1 is no sum of powers of two, and one step more would be a surprise.
    steps = ceil(Fraction(repr(epochs)) * sequences / recipe.train.batch_size)
    if steps > MOST_STEPS:
        cause = f"train.epochs = {epochs:g}: {steps:,} steps, and a run makes at most"
        raise RecipeError(f"{cause} {MOST_STEPS:,}", fix="use fewer epochs, or larger batches")
    known: Recipe = replace(recipe, train=replace(recipe.train, steps=steps))
    check_duration(known)
    return known


def as_written(recipe: Recipe) -> Recipe:
    """The same recipe without the number of steps that follows from its epochs."""
    if recipe.train.epochs is None:
        return recipe
    written: Recipe = replace(recipe, train=replace(recipe.train, steps=None))
    return written
