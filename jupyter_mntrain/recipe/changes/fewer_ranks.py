"""Fewer ranks: the recipe of a job that goes on without some of its nodes. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from jupyter_mntrain.recipe.parts.data_parallel import DataParallelSection
from jupyter_mntrain.recipe.sections import Recipe


def on_fewer_ranks(recipe: Recipe, ranks: int, first: int) -> Recipe:
    """Return the recipe with as many replicas as still fit.

    Each has as many ranks as before, or as near to that as the number of ranks allows. The batch
    stays as large. A replica that is alone has no other to meet.

    Args:
        ranks: of this attempt.
        first: ranks of the job's first attempt.
    """
    before = recipe.data_parallel.replicas
    if ranks >= first or before == 1:
        return recipe
    each = first / before
    fitting = [one for one in range(1, before) if _fits(_with(recipe, one), ranks)]
    if not fitting:
        return recipe
    return _with(recipe, min(fitting, key=lambda one: (abs(ranks / one - each), -one)))


def _with(recipe: Recipe, replicas: int) -> Recipe:
    section = replace(recipe.data_parallel, replicas=replicas)
    if replicas == 1:
        section = DataParallelSection(shards=section.shards)
    return replace(recipe, data_parallel=section)


def _fits(recipe: Recipe, ranks: int) -> bool:
    is_divided = recipe.train.batch_size % recipe.microbatches_per_step == 0
    return is_divided and ranks % recipe.data_parallel.width == 0
