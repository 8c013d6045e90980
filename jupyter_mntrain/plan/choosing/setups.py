"""Setups: combinations of schedule, microbatches and recomputation that a recipe allows. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.combinations import check_memory
from jupyter_mntrain.recipe.parse import check
from jupyter_mntrain.recipe.schedules import KINDS, ScheduleName
from jupyter_mntrain.recipe.sections import Checkpointing, Recipe
from jupyter_mntrain.recipe.stored import PLANNED, is_open

_SIMPLEST_FIRST: Final[tuple[ScheduleName, ...]] = (
    "eager-1f1b",
    "1f1b",
    "eager-zero-bubble",
    "gpipe",
    "interleaved-1f1b",
    "looped-bfs",
    "zbv",
    "interleaved-zero-bubble",
    "dualpipev",
)


class Setup(Record, frozen=True):
    """One combination.

    Args:
        recipe: with it; the split and counts are those that were given, or open.
    """

    recipe: Recipe

    @property
    def schedule(self) -> ScheduleName:
        return self.recipe.schedule

    @property
    def microbatches(self) -> int:
        return self.recipe.microbatches

    @property
    def checkpointing(self) -> Checkpointing:
        return self.recipe.checkpointing

    @property
    def keeps_back(self) -> bool:
        """Whether gradients of weights are put off, with one stage per rank."""
        return KINDS[self.schedule].puts_off

    @property
    def is_eager(self) -> bool:
        """Whether microbatches in flight are chosen for each stage."""
        return KINDS[self.schedule].is_eager

    @property
    def simplicity(self) -> tuple[int, int, int]:
        """Lower is simpler: no recomputation, a plain schedule, few microbatches."""
        again = ("none", "selective", "full").index(self.checkpointing)
        return again, _SIMPLEST_FIRST.index(self.schedule), self.microbatches


def open_settings(recipe: Recipe) -> frozenset[str]:
    """The settings that a recipe leaves to the plan."""
    return frozenset(name for name in PLANNED if is_open(recipe, name))


def make_setups(
    recipe: Recipe,
    ranks: int,
    layers: int,
    opened: Collection[str],
    *,
    splits_backward: bool = True,
) -> list[Setup]:
    """Return every combination that can run on this number of ranks.

    Args:
        ranks: of all pipelines.
        layers: of the model.
        opened: settings to choose, of :data:`PLANNED`.
        splits_backward: whether torch can split the model's backward pass.

    Raises:
        RecipeError: none can.
    """
    found, refusals = [], []
    for setup in _combinations(recipe, ranks, opened):
        is_split = KINDS[setup.schedule].splits_backward
        if is_split and not splits_backward and "pipeline.schedule" in opened:
            continue
        try:
            check_memory(setup.recipe)
            check(setup.recipe, ranks, layers=layers)
        except RecipeError as error:
            refusals.append(error)
        else:
            found.append(setup)
    if not found:
        raise refusals[0]
    return found


def replaced(recipe: Recipe, **changes: object) -> Recipe:
    """A recipe with other fields of its pipeline, or another ``checkpointing``."""
    again = changes.pop("checkpointing", recipe.memory.checkpointing)
    return msgspec.structs.replace(
        recipe,
        pipeline=msgspec.structs.replace(recipe.pipeline, **changes),
        memory=msgspec.structs.replace(recipe.memory, checkpointing=again),
    )


def _combinations(recipe: Recipe, ranks: int, opened: Collection[str]) -> Iterator[Setup]:
    width = recipe.data_parallel.width
    schedules = [recipe.schedule]
    if "pipeline.schedule" in opened:
        schedules = ["eager-1f1b"] if ranks == width else list(KINDS)
    counts = [recipe.microbatches]
    if "pipeline.microbatches" in opened:
        share = recipe.train.batch_size // (width * recipe.train.accumulation)
        counts = [one for one in range(1, share + 1) if share % one == 0] or [1]
    kept = [recipe.checkpointing]
    if "memory.checkpointing" in opened:
        kept = ["none", "selective", "full"]
    fixed = {"split": "even"} if "pipeline.split" in opened else {}
    for schedule in schedules:
        for count in counts:
            for checkpointing in kept:
                settings = {"schedule": schedule, "microbatches": count, **fixed}
                yield Setup(replaced(recipe, checkpointing=checkpointing, **settings))
