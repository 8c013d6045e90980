"""What is compared, and what comes out. Imports no torch, so that collecting tests stays quick."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec

from jupyter_mntrain.train.recipe import check
from jupyter_mntrain.train.sections import (
    DataSection,
    ModelSection,
    OptimizerSection,
    PipelineSection,
    Recipe,
    TrainSection,
)

LAYERS = 7
VOCABULARY = 320
STEPS = 4
UNEVEN = {2: (5, 2), 3: (1, 4, 2), 4: (1, 3, 1, 2), 6: (1, 2, 1, 1, 1, 1)}
"""Layers per stage, by number of stages. (An even split of 7 is 4+3, 3+2+2, ...)"""


class Outcome(msgspec.Struct):
    """The worst of all ranks."""

    loss_error: float
    """Absolute, on a loss near ln(320) = 5.8."""
    gradient_error: float
    """Largest difference over the largest value, worst of all parameters."""
    worst: str
    trained_loss_error: float
    """After several clipped AdamW steps."""
    trained_weight_error: float
    sent_bytes: dict[int, dict[int, int]]
    expected_bytes: dict[int, dict[int, int]]


def cases(world_size: int) -> dict[str, Recipe]:
    """Every schedule, split, accumulation and tying on Llama; other families once per schedule."""
    found: dict[str, Recipe] = {}
    schedules = ("gpipe", "1f1b", "interleaved-1f1b")
    for schedule, split, accumulation, tied in itertools.product(
        schedules, ("even", "uneven"), (1, 2), (False, True)
    ):
        name = f"{schedule} {split} accumulation={accumulation} {'tied' if tied else 'untied'}"
        found[name] = case("llama", schedule, split, accumulation, world_size, tied=tied)
    for family, schedule in itertools.product(("mistral", "qwen2", "qwen3"), schedules):
        found[f"{family} {schedule}"] = case(family, schedule, "uneven", 2, world_size, tied=True)
    return found


def case(
    family: str, schedule: Any, split: str, accumulation: int, world_size: int, *, tied: bool
) -> Recipe:
    stages = world_size * (2 if schedule == "interleaved-1f1b" else 1)
    microbatches = 2 * world_size
    recipe = Recipe(
        model=ModelSection(preset=f"{family}-tiny", layers=LAYERS, tie_embeddings=tied),
        data=DataSection(sequence_length=16, vocabulary_size=VOCABULARY),
        pipeline=PipelineSection(
            schedule=schedule,
            microbatches=microbatches,
            split="even" if split == "even" else UNEVEN[stages],
        ),
        # A norm that clips always, so that a wrong global norm shows.
        optimizer=OptimizerSection(learning_rate=1e-2, clip_norm=0.1, warmup_steps=1, epsilon=1e-5),
        train=TrainSection(
            steps=STEPS, batch_size=2 * microbatches * accumulation, accumulation=accumulation
        ),
    )
    check(recipe, world_size)
    return recipe
