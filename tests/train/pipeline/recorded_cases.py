"""Cases of the recorded steps, and what is recorded. Imports no torch."""

from __future__ import annotations

from typing import Any

import msgspec

from jupyter_mntrain.recipe.parse import check
from jupyter_mntrain.recipe.schedules import KINDS, in_flight
from jupyter_mntrain.recipe.sections import (
    DataSection,
    ModelSection,
    PipelineSection,
    Recipe,
    TrainSection,
)

RANKS = 4
VOCABULARY = 64
MICROBATCHES = 64
LINKS = ((0.0, 0.3), (0.0, 1.0), (0.0, 2.0), (1.0, 0.5), (3.0, 0.5))
"""Latency one way and time that a message occupies a link, where a forward pass takes 1 and a
backward pass 2."""


class Step(msgspec.Struct, frozen=True):
    """What a rank does next; ``kind`` as in :class:`StageAction`.

    Args:
        batch: messages of the same number are one operation of torch.
        is_beside: posted on a stream alongside that which computes.
    """

    kind: Any
    stage: int
    microbatch: int
    group: str = ""
    group_ranks: tuple[int, ...] = ()
    peer: int = -1
    batch: int = 0
    is_beside: bool = False


class Recorded(msgspec.Struct, frozen=True):
    """One rank's step.

    Args:
        connected: groups per direction that this rank connected before.
    """

    steps: tuple[Step, ...]
    connected: tuple[str, ...]


def ahead(latency: float, occupied: float) -> tuple[int, ...]:
    """Microbatches in flight that the trainer chooses for such links."""
    round_trip = 2 * (latency + occupied)
    return in_flight(
        [3.0] * RANKS, [round_trip] * (RANKS - 1), MICROBATCHES, [MICROBATCHES] * RANKS
    )


def name_of(count: tuple[int, ...]) -> str:
    return f"eager-1f1b {count}"


def _case(schedule: Any, microbatches: int, **pipeline: Any) -> Recipe:
    recipe = Recipe(
        model=ModelSection(preset="llama-tiny", layers=2 * RANKS),
        data=DataSection(sequence_length=4, vocabulary_size=VOCABULARY),
        pipeline=PipelineSection(schedule=schedule, microbatches=microbatches, **pipeline),
        train=TrainSection(steps=1, batch_size=microbatches),
    )
    check(recipe, RANKS)
    return recipe


CASES: dict[str, Recipe] = {
    **{name: _case(name, 2 * RANKS) for name in KINDS if name != "eager-1f1b"},
    **{
        name_of(count): _case("eager-1f1b", MICROBATCHES, in_flight=count)
        for count in dict.fromkeys(ahead(*link) for link in LINKS)
    },
}
