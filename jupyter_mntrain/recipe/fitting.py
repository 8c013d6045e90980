"""Fitting: resolves a job's settings for its nodes' GPUs, and checks that they can run it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from jupyter_mntrain.model.api import LeaseGrant
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.records.job import JobSpec, Placement
from jupyter_mntrain.model.records.node import NodeInfo
from jupyter_mntrain.recipe.devices import (
    Seat,
    can_do,
    choice_line,
    choose,
    leased_seats,
    refuse_unable,
    seats_of,
)
from jupyter_mntrain.recipe.parse import check as check_ranks
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.recipe.stored import (
    PLANNED,
    as_trained,
    is_open,
    resolved,
    values_of,
    written_recipe,
)

TRANSFER = "pipeline.transfer"

_GIVEN_UP = frozenset({"model.attention", "memory.loss", "memory.compile"})


class Fit(NamedTuple):
    """A recipe resolved for the devices of a job.

    Args:
        recipe: resolved.
        seats: of all ranks, in their order.
        chosen: values in place of ``auto``, as for :func:`resolved`.
        said: what is said of the choice; see :func:`choice_line`.
    """

    recipe: Recipe
    seats: Sequence[Seat]
    chosen: Mapping[str, str]
    said: str


def fit(recipe: Recipe, seats: Sequence[Seat], kept: Mapping[str, str]) -> Fit:
    """Choose what a recipe leaves to the devices, without checking that they can run it.

    Args:
        kept: what is chosen already. Attention, loss and compilation are chosen again where a node
            cannot do them, and a plan where it was made for another number of ranks: the losses are
            equal except for rounding.
    """
    chosen = {name: value for name, value in kept.items() if is_open(recipe, name)}
    if chosen.get(TRANSFER) == "none" and not all(seat.compresses for seat in seats):
        del chosen[TRANSFER]  # it is so there, and their older mntrain does not know the setting
    if not _is_for(resolved(recipe, chosen), len(seats)):
        chosen = {name: value for name, value in chosen.items() if name not in PLANNED}
    known = resolved(recipe, chosen)
    for name in _GIVEN_UP & chosen.keys():
        if not can_do(name, known, seats):
            del chosen[name]
    chosen |= choose(resolved(recipe, chosen), seats)
    return Fit(resolved(recipe, chosen), seats, chosen, choice_line(recipe, chosen, seats))


def _is_for(recipe: Recipe, ranks: int) -> bool:
    """Whether a recipe with planned values can run on this number of ranks."""
    try:
        check_ranks(recipe, ranks)
    except RecipeError:
        return False
    return recipe.split == "even" or len(recipe.split) == recipe.stages(ranks)


def fitted(spec: JobSpec, infos: Sequence[NodeInfo]) -> JobSpec:
    """Return the job with a value for each setting that its recipe leaves to the devices.

    A job that starts over chooses again; one that goes on keeps what its run has.

    Args:
        infos: the participants' nodes, in their order.

    Raises:
        RecipeError: a GPU or node lacks what the recipe needs.
    """
    recipe = written_recipe(spec)
    if recipe is None:
        return spec
    is_resumed = spec.origin is not None
    seats = seats_of(recipe, spec.participants, infos)
    found = fit(recipe, seats, spec.chosen if is_resumed else {})
    refuse_unable(found.recipe, seats, is_resumed=is_resumed)
    return msgspec.structs.replace(spec, chosen=dict(found.chosen))


def refuse_leased(
    spec: JobSpec,
    placements: Sequence[Placement],
    grants: Sequence[LeaseGrant],
    *,
    is_resumed: bool,
) -> None:
    """Refuse nodes that, as they are now, cannot run a job that was fitted earlier.

    Args:
        grants: of the leases, in the order of the placements.
        is_resumed: it goes on with weights of an earlier attempt or job.

    Raises:
        RecipeError: a GPU or node lacks what the recipe needs.
    """
    recipe = written_recipe(spec)
    if recipe is not None:
        found = fit(recipe, leased_seats(recipe, placements, grants), spec.chosen)
        refuse_unable(found.recipe, found.seats, is_resumed=is_resumed)


def keeping(spec: JobSpec, before: Recipe) -> tuple[JobSpec, Recipe]:
    """Return a job that keeps its run's values where its recipe leaves them open.

    Return also the recipe that the run was trained with.

    Args:
        before: the run's recipe, as it was stored.
    """
    trained, recipe = as_trained(before), written_recipe(spec)
    if recipe is None:
        return spec, trained
    known = values_of(trained)
    chosen = {name: value for name, value in known.items() if is_open(recipe, name)}
    if recipe.microbatch_size > trained.microbatch_size:
        chosen.pop("memory.loss", None)  # more logits at once may need to be in chunks
    return msgspec.structs.replace(spec, chosen=chosen), trained
