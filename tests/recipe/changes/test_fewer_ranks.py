"""Fewer ranks: as many replicas as still fit."""

from __future__ import annotations

import pytest

from jupyter_mntrain.recipe.changes.fewer_ranks import on_fewer_ranks
from jupyter_mntrain.recipe.parse import check, parse_recipe
from jupyter_mntrain.recipe.sections import DataParallelSection, Recipe


def recipe_of(*settings: str) -> Recipe:
    usual = ("train.batch_size=24", "pipeline.microbatches=2", "pipeline.split=auto")
    return parse_recipe("", [*usual, *settings])


@pytest.mark.parametrize(
    ("replicas", "first", "left", "expected"),
    [
        (2, 2, 1, 1),
        (3, 3, 2, 2),
        (3, 6, 4, 2),  # of two ranks each, as before
        (3, 6, 3, 1),  # half of one is lost, too: a pipeline of three, rather than three of one
        (4, 4, 3, 3),
        (2, 4, 3, 1),
    ],
)
@pytest.mark.parametrize("every", [0, 50])
def test_replicas_keep_as_many_ranks_as_they_can(
    replicas: int, first: int, left: int, expected: int, every: int
) -> None:
    before = recipe_of(
        f"data_parallel.replicas={replicas}", f"data_parallel.sync_every={every}", "model.layers=6"
    )
    found = on_fewer_ranks(before, left, first)
    assert found.data_parallel.replicas == expected
    assert found.data_parallel.sync_every == (every if expected > 1 else 0)
    assert found.train == before.train, "the batch stays as large"
    check(found, left)


def test_what_has_all_its_ranks_or_no_replicas_stays() -> None:
    for recipe, left, first in (
        (recipe_of("data_parallel.replicas=2"), 4, 4),
        (recipe_of("data_parallel.replicas=2"), 4, 2),
        (recipe_of(), 1, 2),
    ):
        assert on_fewer_ranks(recipe, left, first) is recipe


def test_replicas_that_cannot_divide_the_batch_are_not_chosen() -> None:
    recipe = recipe_of("data_parallel.replicas=4", "train.batch_size=16")
    assert on_fewer_ranks(recipe, 3, 4).data_parallel.replicas == 1


def test_what_the_last_replica_needs_besides_syncs_stays() -> None:
    settings = ("replicas=2", "shards=2", "sync_every=10", "outer_momentum=0.5", "sync_dtype=int8")
    alone = on_fewer_ranks(
        recipe_of(
            *(f"data_parallel.{one}" for one in settings),
            *("data_parallel.reshard_after_forward=true", "pipeline.microbatches=1"),
        ),
        *(2, 4),
    )
    expected = DataParallelSection(shards=2, reshard_after_forward=True)
    assert alone.data_parallel == expected


def test_no_number_is_chosen_that_the_model_is_too_small_for() -> None:
    recipe = recipe_of("data_parallel.replicas=4", "train.batch_size=16", "model.layers=2")
    assert on_fewer_ranks(recipe, 3, 4) is recipe, "three stages need three layers"


def test_shards_that_do_not_fit_the_ranks_are_left_to_the_check() -> None:
    recipe = recipe_of("data_parallel.replicas=2", "data_parallel.shards=2")
    assert on_fewer_ranks(recipe, 3, 4) is recipe
