"""Learning rate over the steps of a training."""

from __future__ import annotations

import math

from jupyter_mntrain.recipe.sections import LearningRateSchedule, Recipe


def ratio_at(recipe: Recipe, step: int) -> float:
    """Ratio to the full learning rate at ``step``, from 0."""
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
    """Ratio to the full learning rate at ``step``, from 0: linear warm-up, then the schedule.

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
