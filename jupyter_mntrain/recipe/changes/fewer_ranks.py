"""Fewer ranks: the recipe of a job that continues without some of its nodes. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.parse import check
from jupyter_mntrain.recipe.sections import OF_SYNCS, DataParallelSection, Recipe


def on_fewer_ranks(recipe: Recipe, ranks: int, whole: int) -> Recipe:
    """Return the recipe with as many replicas as still fit.

    Each has as many ranks as before, or as near to that as the number of ranks and the batch allow,
    which stays as large. A replica that is alone has no other to sync with.

    Args:
        ranks: of this attempt.
        whole: ranks of the job with all its nodes.
    """
    before = recipe.data_parallel.replicas
    if ranks >= whole or before == 1:
        return recipe
    each = whole / before
    fitting = [one for one in range(1, before) if _fits(_with(recipe, one), ranks)]
    if not fitting:
        return recipe
    return _with(recipe, min(fitting, key=lambda one: (abs(ranks / one - each), -one)))


def _with(recipe: Recipe, replicas: int) -> Recipe:
    section = replace(recipe.data_parallel, replicas=replicas)
    if replicas == 1:
        usual = DataParallelSection()
        section = replace(section, sync_every=0, **{one: getattr(usual, one) for one in OF_SYNCS})
    return replace(recipe, data_parallel=section)


def _fits(recipe: Recipe, ranks: int) -> bool:
    try:
        check(recipe, ranks)
    except RecipeError:
        return False
    return True
