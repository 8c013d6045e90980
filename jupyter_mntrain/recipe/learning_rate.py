"""Learning rate: its value at each step, and the number of steps in a run. Pure."""

from __future__ import annotations

import math
from fractions import Fraction
from math import ceil

from msgspec.structs import replace

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.records.checkpoint import MOST_STEPS
from jupyter_mntrain.recipe.combinations import check_duration
from jupyter_mntrain.recipe.sections import LearningRateSchedule, Recipe

# Duration: how many optimizer steps the epochs of a recipe are. Pure.


def with_steps(recipe: Recipe, sequences: int) -> Recipe:
    """Return the recipe with the number of steps in its epochs; unchanged if it gives steps.

    Batches go on from one epoch into the next, so only the last one may begin another epoch.

    Args:
        sequences: that are trained on in an epoch: of several sources, those of all.

    Raises:
        RecipeError: it is too many steps, or fewer than the learning rate needs.
    """
    epochs = recipe.train.epochs
    if epochs is None:
        return recipe
    # As it was written: 0.1 is not exact in binary, and one step more would be a surprise.
    steps = ceil(Fraction(repr(epochs)) * sequences / recipe.train.batch_size)
    if steps > MOST_STEPS:
        cause = f"train.epochs = {epochs:g}: {steps:,} steps, and a run makes at most"
        raise RecipeError(f"{cause} {MOST_STEPS:,}", fix="use fewer epochs, or larger batches")
    known: Recipe = replace(recipe, train=replace(recipe.train, steps=steps))
    check_duration(known)
    return known


def as_written(recipe: Recipe) -> Recipe:
    """Return the recipe without the number of steps that was derived from its epochs."""
    if recipe.train.epochs is None:
        return recipe
    written: Recipe = replace(recipe, train=replace(recipe.train, steps=None))
    return written


# Learning rate over the steps of a training.


def ratio_at(recipe: Recipe, step: int) -> float:
    """Return the ratio to the full learning rate at ``step``, from 0."""
    section = recipe.optimizer
    return learning_rate_ratio(
        step,
        steps=recipe.steps,
        warmup_steps=recipe.warmup_steps,
        min_ratio=section.min_ratio,
        schedule=section.schedule,
        decay_steps=recipe.decay_steps,
        power=section.power,
    )


def learning_rate_ratio(
    step: int,
    *,
    steps: int,
    warmup_steps: int,
    min_ratio: float,
    schedule: LearningRateSchedule = "cosine",
    decay_steps: int = 0,
    power: float = 1.0,
) -> float:
    """Return the ratio to the full learning rate at ``step``, from 0: warm-up, then the schedule.

    It is above 0 at the first step, and ``min_ratio`` at the last, unless it is constant.

    Args:
        decay_steps: of ``wsd`` (arXiv 2404.06395), before the last step.
        power: of ``polynomial``.
    """
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    if schedule == "constant":
        return 1.0
    last = steps - 1
    begin = max(warmup_steps, last - decay_steps) if schedule == "wsd" else warmup_steps
    progress = min(1.0, max(0, step - begin) / max(1, last - begin))
    match schedule:
        case "cosine":
            left = 0.5 * (1 + math.cos(math.pi * progress))
        case "polynomial":
            left = (1 - progress) ** power
        case "linear" | "wsd":
            left = 1 - progress
    return min_ratio + (1 - min_ratio) * left
