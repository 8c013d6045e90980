"""A predicted step: equal to the formulas where they hold, and right about what limits it."""

from __future__ import annotations

import pytest

from jupyter_mntrain.model.records.plan import DeviceSpeed, LinkSpeed
from jupyter_mntrain.plan.prediction.step import Links, PredictedStep, least_step, predict_step
from jupyter_mntrain.recipe.memory import model_config
from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.recipe.schedules import KINDS, ScheduleName

RECIPE = '[model]\npreset = "llama-tiny"\n[pipeline]\nmicrobatches = 8\nschedule = "{}"\n'
PEAK = 1e12


def predicted(
    schedule: ScheduleName,
    speeds: list[float],
    links: Links | None = None,
    *changes: str,
) -> PredictedStep:
    recipe = parse_recipe(
        RECIPE.format(schedule),
        [
            *("train.batch_size=16", "model.layers=16", "data.vocabulary_size=257"),
            *("model.dtype=float32", *changes),
        ],
    )
    config = model_config(recipe)
    assert config is not None
    return predict_step(recipe, config, [DeviceSpeed(one) for one in speeds], links or {})[0]


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "eager-1f1b"])
def test_without_links_it_is_the_least_step(schedule: ScheduleName) -> None:
    recipe = parse_recipe(
        RECIPE.format(schedule),
        ["train.batch_size=16", "model.layers=16", "data.vocabulary_size=257"],
    )
    config = model_config(recipe)
    assert config is not None
    least = least_step(recipe, config, [PEAK] * 4)
    assert predicted(schedule, [PEAK] * 4).seconds == pytest.approx(least.seconds, rel=0.02)


@pytest.mark.parametrize("schedule", KINDS)
def test_every_schedule_is_predicted(schedule: ScheduleName) -> None:
    step = predicted(schedule, [PEAK, PEAK])
    assert 0 < max(step.computing_s) <= step.seconds
    assert all(0 <= one < 0.5 for one in step.bubbles)


def test_one_rank_computes_all_the_time() -> None:
    step = predicted("eager-1f1b", [PEAK])
    assert step.bubbles[0] == pytest.approx(0.0, abs=1e-9)
    assert step.bottleneck == "rank 0's device"


def test_a_slow_device_sets_the_pace() -> None:
    step = predicted("eager-1f1b", [PEAK, PEAK / 3], None, "pipeline.microbatches=16")
    assert step.bottleneck == "rank 1's device"
    assert step.bubbles[0] > 0.5


def test_a_slow_link_sets_the_pace_and_more_go_ahead_on_it() -> None:
    fast = predicted("eager-1f1b", [PEAK, PEAK])
    bytes_per_s = 1e6 / fast.seconds
    links = {(0, 1): LinkSpeed(bytes_per_s, 1e-6), (1, 0): LinkSpeed(1e15)}
    step = predicted("eager-1f1b", [PEAK, PEAK], links)
    assert step.bottleneck.endswith("the link from rank 0 to rank 1")
    assert step.links[0, 1] > step.links[1, 0]
    assert step.in_flight[0] > fast.in_flight[0]
    assert step.seconds > fast.seconds


def test_accumulation_repeats_the_schedule() -> None:
    once = predicted("1f1b", [PEAK, PEAK])
    twice = predicted("1f1b", [PEAK, PEAK], None, "train.accumulation=2", "train.batch_size=32")
    assert twice.seconds == pytest.approx(2 * once.seconds)
    assert twice.bubbles == pytest.approx(once.bubbles)


def test_torch_computes_no_gradients_of_inputs_apart_on_the_first_stage() -> None:
    recipe = parse_recipe(RECIPE.format("zbv"), ["model.layers=8", "train.batch_size=16"])
    config = model_config(recipe)
    assert config is not None
    walked = predict_step(recipe, config, [DeviceSpeed(PEAK)] * 2, {})[1]
    spent: dict[tuple[str, int], float] = {}
    for action, begin, end in walked.computing[0]:
        spent[action.kind, action.stage] = spent.get((action.kind, action.stage), 0) + end - begin
    assert spent["I", 0] == 0
    assert spent["W", 0] > spent["W", 3] > 0
    assert spent["I", 3] > 0


def test_two_links_of_a_node_share_its_interface() -> None:
    recipe = parse_recipe(
        RECIPE.format("eager-1f1b"),
        ["pipeline.microbatches=16", "train.batch_size=16", "model.layers=16"],
    )
    config = model_config(recipe)
    assert config is not None
    links = dict.fromkeys([(0, 1), (1, 0), (1, 2), (2, 1)], LinkSpeed(1e15))
    slow = LinkSpeed(1e6)
    speeds = [DeviceSpeed(1e15)] * 3

    def seconds(*slow_pairs: tuple[int, int]) -> float:
        given = links | dict.fromkeys(slow_pairs, slow)
        return predict_step(recipe, config, speeds, given, nodes=["a", "b", "c"])[0].seconds

    assert seconds((1, 0), (1, 2)) > 1.8 * seconds((1, 2))
