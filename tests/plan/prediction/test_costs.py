"""Costs of stages: they add up to the formulas that MFU is computed with."""

from __future__ import annotations

import pytest

from jupyter_mntrain.families import shape_of
from jupyter_mntrain.model.records.plan import DeviceSpeed
from jupyter_mntrain.plan.prediction.step import stage_costs
from jupyter_mntrain.recipe.layout import lay_out
from jupyter_mntrain.recipe.memory import Config, model_config
from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.telemetry.formulas import stage_flops_per_token

TINY = '[model]\npreset = "llama-tiny"\n[pipeline]\nmicrobatches = 4\n'


def of(*changes: str) -> tuple[Recipe, Config]:
    recipe = parse_recipe(TINY, ["train.batch_size=8", "model.dtype=float32", *changes])
    config = model_config(recipe)
    assert config is not None
    return recipe, config


@pytest.mark.parametrize("ranks", [1, 2])
def test_passes_add_up_to_the_flops_of_mfu(ranks: int) -> None:
    recipe, config = of()
    shape = shape_of(config)
    layout = lay_out(recipe, ranks, shape.layers)
    tokens = recipe.microbatch_size * recipe.data.sequence_length
    for stage, cost in enumerate(stage_costs(recipe, config, layout)):
        counted = stage_flops_per_token(
            shape,
            recipe.data.sequence_length,
            layers=len(layout.stages[stage]),
            has_head=stage == layout.last_stage,
        )
        assert cost.forward + cost.inputs + cost.weights == pytest.approx(tokens * counted)
        assert cost.inputs > cost.weights, "attention has no weights"


def test_recomputation_costs_a_forward_pass_without_the_head() -> None:
    recipe, config = of("memory.checkpointing=full")
    layout = lay_out(recipe, 2, shape_of(config).layers)
    first, last = stage_costs(recipe, config, layout)
    assert first.again == pytest.approx(first.forward)
    assert 0 < last.again < last.forward
    speed = DeviceSpeed(flops_per_s=1e9)
    times = first.times(speed)
    assert times.backward == pytest.approx(times.inputs + times.weights)
    assert times.backward == pytest.approx(3 * times.forward)


def test_memory_that_is_slow_adds_to_the_time() -> None:
    recipe, config = of()
    layout = lay_out(recipe, 1, shape_of(config).layers)
    (cost,) = stage_costs(recipe, config, layout)
    fast = cost.times(DeviceSpeed(flops_per_s=1e9))
    slow = cost.times(DeviceSpeed(flops_per_s=1e9, bytes_per_s=1e6))
    assert slow.forward == pytest.approx(fast.forward + 2 * cost.saved_bytes / 1e6)
    assert slow.backward == pytest.approx(slow.inputs + slow.weights)


def test_what_is_written_again_takes_time_where_memory_is_slow() -> None:
    speed = DeviceSpeed(flops_per_s=1e12, bytes_per_s=1e9)
    seconds = {}
    for again in ("none", "selective", "full"):
        recipe, config = of(f"memory.checkpointing={again}")
        (cost,) = stage_costs(recipe, config, lay_out(recipe, 1, shape_of(config).layers))
        seconds[again] = cost.times(speed).backward
    assert seconds["none"] < seconds["selective"] < seconds["full"]
