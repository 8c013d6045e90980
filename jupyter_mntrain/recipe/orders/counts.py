"""Counts: microbatches that each stage of an eager schedule holds, given or chosen. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.schedules import KINDS, in_flight
from jupyter_mntrain.recipe.sections import Recipe

FORWARDS = 3.0
"""Forward passes that take as long as one and its backward pass, about."""


class Counts(NamedTuple):
    """Microbatches of each stage, from the first.

    Args:
        ahead: in flight, at least 1.
        kept_back: whose gradients of weights are put off at most; 0 puts off none.
    """

    ahead: tuple[int, ...]
    kept_back: tuple[int, ...]


def check_counts(recipe: Recipe, stages: int) -> None:
    """Refuse numbers that the schedule does not have, or that are not one for each stage.

    Raises:
        RecipeError: naming the field and what to change.
    """
    kind, ahead = KINDS[recipe.schedule], recipe.pipeline.in_flight
    if ahead != "auto":
        _check_field("in_flight", ahead, recipe, stages, applies=kind.is_eager)
        if any(one < other for one, other in pairwise(ahead)):
            cause = f"pipeline.in_flight = {list(ahead)}: a stage has fewer than the next stage, "
            cause += "which would then wait for it"
            raise RecipeError(cause, fix="use numbers that never increase, like 4, 2, 1")
    if recipe.pipeline.kept_back != "auto":
        _check_field("kept_back", recipe.pipeline.kept_back, recipe, stages, applies=kind.puts_off)


def _check_field(
    field: str, given: Sequence[int], recipe: Recipe, stages: int, *, applies: bool
) -> None:
    shown = f"pipeline.{field} = {list(given)}"
    if not applies:
        what = "has a fixed order" if field == "in_flight" else "puts off no gradients"
        suits = "eager-1f1b" if field == "in_flight" else "eager-zero-bubble"
        cause = f"{shown}: {recipe.schedule} {what}"
        raise RecipeError(cause, fix=f'leave it out or use schedule = "{suits}"')
    if len(given) != stages:
        cause = f"{shown}: {len(given)} numbers for {stages} pipeline stages"
        raise RecipeError(cause, fix=f'give {stages} numbers or {field} = "auto"')


def choose_counts(
    recipe: Recipe,
    compute_s: Sequence[float],
    transfer_s: Sequence[float],
    most: Sequence[int],
) -> Counts:
    """Return the counts of a recipe, choosing those that it leaves open.

    Args:
        recipe: with an eager schedule.
        compute_s: forward and backward of one microbatch, per stage.
        transfer_s: round trip to the next stage, per boundary; 0 = on one machine.
        most: microbatches that fit into memory, per stage.
    """
    microbatches, puts_off = recipe.microbatches, KINDS[recipe.schedule].puts_off
    if recipe.pipeline.in_flight != "auto":
        ahead = recipe.pipeline.in_flight
    else:
        ahead = in_flight(compute_s, transfer_s, microbatches, most)
        if puts_off:
            first = min(_until_first_gradient(compute_s, transfer_s), microbatches, most[0])
            ahead = (max(first, ahead[0]), *ahead[1:])
    if not puts_off:
        return Counts(ahead, (0,) * len(ahead))
    if recipe.pipeline.kept_back != "auto":
        return Counts(ahead, recipe.pipeline.kept_back)
    return Counts(ahead, _kept_back(ahead, transfer_s, microbatches, most))


def counts_without_links(recipe: Recipe, stages: int) -> Counts:
    """Return the counts for equal stages on one machine."""
    fits = (recipe.microbatches,) * stages
    return choose_counts(recipe, (1.0,) * stages, (0.0,) * (stages - 1), fits)


def _until_first_gradient(compute_s: Sequence[float], transfer_s: Sequence[float]) -> int:
    """Forward passes that the first stage can compute before its first gradient is there.

    Later stages must not send as many ahead: what is sent first would hold up the gradients.
    """
    slowest, stages = max(compute_s), len(compute_s)
    on_links = math.ceil(FORWARDS * sum(transfer_s) / slowest) if slowest > 0 else 0
    return 2 * stages - 1 + on_links


def _kept_back(
    ahead: Sequence[int], transfer_s: Sequence[float], microbatches: int, most: Sequence[int]
) -> tuple[int, ...]:
    """One more for each boundary before a stage, two more for one with a link.

    Nobody waits for the first stage's gradients of inputs. With a third each for forward, inputs
    and weights, the simulator finds no better ones without links, and hardly better ones over links
    faster than a forward pass.
    """
    wanted = [0]
    for transfer in transfer_s:
        wanted.append(wanted[-1] + (2 if transfer > 0 else 1))
    # In flight or kept back, no more than all microbatches are held.
    room = (
        microbatches if limit >= microbatches else max(0, limit - count)
        for count, limit in zip(ahead, most, strict=True)
    )
    return tuple(min(count, space) for count, space in zip(wanted, room, strict=True))
