"""Least step time: from FLOPs, peaks and links."""

from __future__ import annotations

import pytest

from jupyter_mntrain.families import shape_of
from jupyter_mntrain.plan.prediction.step import compute_s, least_step
from jupyter_mntrain.recipe.memory import model_config
from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.telemetry.formulas import (
    head_flops_per_token,
    ideal_bubble,
    layer_flops_per_token,
)

TINY = '[model]\npreset = "llama-tiny"\n[pipeline]\nmicrobatches = 4\nschedule = "{}"\n'
PEAK = 1e12


def of(schedule: str = "1f1b", *changes: str):
    recipe = parse_recipe(TINY.format(schedule), ["train.batch_size=8", *changes])
    config = model_config(recipe)
    assert config is not None
    return recipe, config


def test_one_rank_needs_its_flops_at_its_peak() -> None:
    recipe, config = of()
    shape = shape_of(config)
    each = shape.layers * layer_flops_per_token(shape, 256) + head_flops_per_token(shape)
    step = least_step(recipe, config, [PEAK])
    assert step.seconds == pytest.approx(8 * 256 * each / PEAK)
    assert step.tokens_per_s == pytest.approx(PEAK / each)
    assert step.rank == 0


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "zbv"])
def test_equal_ranks_wait_as_long_as_the_schedules_own_bubble(schedule: str) -> None:
    # Without the head, which only the last stage has, all stages are equal.
    recipe, config = of(schedule, "data.vocabulary_size=257", "model.layers=8")
    config = {**config, "vocab_size": 0}
    costs = compute_s(recipe, config, [PEAK, PEAK])
    assert costs[0] == pytest.approx(costs[1])
    per_rank = recipe.stages_per_rank
    bubble = ideal_bubble(2, 4, per_rank, schedule=schedule)
    step = least_step(recipe, config, [PEAK, PEAK])
    assert step.seconds == pytest.approx(costs[0] / (1 - bubble))


def test_the_slower_device_or_the_link_sets_the_pace() -> None:
    recipe, config = of()
    assert least_step(recipe, config, [PEAK, PEAK / 10]).rank == 1
    assert least_step(recipe, config, [PEAK / 10, PEAK]).rank == 0
    slow = least_step(recipe, config, [PEAK, PEAK], link_s=100.0)
    assert (slow.seconds, slow.rank) == (100.0, None)


def test_two_pipelines_share_the_batch() -> None:
    recipe, config = of("1f1b", "data_parallel.replicas=2", "model.tie_embeddings=true")
    one, config_of_one = of("1f1b", "model.tie_embeddings=true")
    both = least_step(recipe, config, [PEAK] * 2)
    alone = least_step(one, config_of_one, [PEAK])
    assert both.seconds == pytest.approx(alone.seconds / 2)
