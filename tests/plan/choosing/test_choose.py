"""Choosing: as good as trying everything, within memory, and as the user fixed it."""

from __future__ import annotations

import json
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.records.plan import LinkSpeed
from jupyter_mntrain.recipe.memory import CPU_OVERHEAD
from tests.plan.choosing.conftest import count
from tests.plan.choosing.jobs import ETHERNET, FAST, devices, job, planned, split_of
from tests.searches import runs_all
from tests.wording import wording

ONE_ORDER = ("pipeline.schedule", "pipeline.microbatches", "memory.checkpointing")


@pytest.mark.parametrize("link", [FAST, ETHERNET])
@pytest.mark.parametrize(
    "speeds", [[2e10, 1e10], [3e10, 1e10, 2e10], [1e10, 1e10, 1e10], [1e10, 5e10, 5e10, 2e10]]
)
def test_its_split_is_as_good_as_the_best_of_all(speeds: list[float], link: LinkSpeed) -> None:
    recipe, config = job()
    plan = planned(recipe, config, devices(speeds), link, fixed=ONE_ORDER)
    layers, ranks = config["num_hidden_layers"], len(speeds)
    best = min(
        planned(
            *job(f"pipeline.split={list(split)}"),
            devices(speeds),
            link,
            fixed=ONE_ORDER,
        ).step_s
        for split in product(range(1, layers), repeat=ranks)
        if sum(split) == layers
    )
    assert plan.step_s <= best * 1.01


def test_unlike_devices_get_unlike_numbers_of_layers() -> None:
    plan = planned(*job(), devices([2e10, 1e10]))
    first, last = split_of(plan)
    assert first > last
    equal = next(one for one in plan.others if one.name == "equal split")
    assert equal.step_s is not None
    assert equal.step_s > 1.2 * plan.step_s


def test_alike_devices_get_the_equal_split_and_say_so() -> None:
    plan = planned(*job(), devices([1e10, 1e10]), fixed=ONE_ORDER)
    assert split_of(plan) == (4, 4)
    equal = next(one for one in plan.others if one.name == "equal split")
    assert equal.step_s == pytest.approx(plan.step_s)


FIXED = {
    "pipeline.schedule": "gpipe",
    "pipeline.microbatches": "32",
    "pipeline.split": "[2, 6]",
    "pipeline.in_flight": "[5, 2]",
    "memory.checkpointing": "full",
}


@pytest.mark.parametrize("name", FIXED)
def test_what_the_user_fixed_is_obeyed(name: str) -> None:
    value = FIXED[name]
    recipe, config = job(f"{name}={value}")
    plan = planned(recipe, config, devices([1e10, 1e10]), ETHERNET)
    assert name not in plan.chosen
    match name:
        case "pipeline.split":
            assert split_of(plan) == (2, 6)
        case "pipeline.in_flight":
            assert plan.in_flight in {(5, 2), ()}
        case "pipeline.schedule":
            assert plan.in_flight == ()
        case "memory.checkpointing":
            plain = planned(*job(), devices([1e10, 1e10]), ETHERNET)
            assert plan.step_s > 1.1 * plain.step_s
        case _:
            free = planned(*job(), devices([1e10, 1e10]), ETHERNET)
            assert free.chosen[name] != value
            assert plan.step_s >= free.step_s * 0.99


def test_all_that_is_open_is_chosen_and_runs() -> None:
    recipe, config = job()
    plan = planned(recipe, config, devices([1e10, 1e10]), ETHERNET)
    again, _ = job(*(f"{name}={value}" for name, value in plan.chosen.items()))
    same = planned(again, config, devices([1e10, 1e10]), ETHERNET)
    assert same.step_s == pytest.approx(plan.step_s)
    assert same.chosen == {}
    assert sum(json.loads(plan.chosen["pipeline.split"])) == config["num_hidden_layers"]
    assert plan.tokens_per_s == pytest.approx(recipe.tokens_per_step / plan.step_s)


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.sampled_from([1e10, 2e10, 4e10]), min_size=2, max_size=4),
    st.lists(st.floats(5e7, 6e8), min_size=4, max_size=4),
)
def test_memory_limits_hold(speeds: list[float], memory: list[float]) -> None:
    given_devices = devices(speeds, memory[: len(speeds)])
    try:
        plan = planned(*job(), given_devices, ETHERNET)
    except RecipeError:
        with pytest.raises(RecipeError, match=wording(r"needs .* of memory and has")) as caught:
            planned(*job(), given_devices, ETHERNET)
        assert caught.value.node in {one.node for one in given_devices}
        assert caught.value.fix
        return
    for rank in plan.ranks:
        assert rank.memory_limit_bytes is not None
        assert rank.memory_bytes <= rank.memory_limit_bytes


def test_a_rank_on_a_cpu_needs_the_memory_of_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = planned(*job(), devices([1e10, 1e10]), fixed=ONE_ORDER)
    count(monkeypatch, CPU_OVERHEAD)
    whole = planned(*job(), devices([1e10, 1e10]), fixed=ONE_ORDER)
    for one, other in zip(whole.ranks, tensors.ranks, strict=True):
        assert one.memory_bytes - other.memory_bytes == CPU_OVERHEAD.process > 0


def test_little_memory_takes_layers_away() -> None:
    roomy = planned(*job(), devices([1e10, 1e10]), fixed=ONE_ORDER)
    size = roomy.ranks[0].memory_bytes
    tight = planned(*job(), devices([1e10, 1e10], [0.8 * size, None]), fixed=ONE_ORDER)
    assert split_of(tight)[0] < split_of(roomy)[0]


def test_less_memory_makes_it_recompute() -> None:
    fixed = ["pipeline.schedule", "pipeline.microbatches"]
    free = planned(*job(), devices([1e10, 1e10]), fixed=fixed)
    assert free.chosen["memory.checkpointing"] == "none"
    size = 0.7 * max(rank.memory_bytes for rank in free.ranks)
    tight = planned(*job(), devices([1e10, 1e10], [size, size]), fixed=fixed)
    assert tight.chosen["memory.checkpointing"] != "none"
    assert tight.step_s > free.step_s


def test_small_microbatches_are_not_taken_without_need() -> None:
    plan = planned(*job(), devices([1e10]))
    assert int(plan.chosen["pipeline.microbatches"]) == 1


def test_the_slow_link_is_put_where_it_does_not_matter() -> None:
    """Three nodes, of which the first two have a bad link: the third goes between them."""
    bad = LinkSpeed(1e6, 5e-3, is_measured=True)

    def links(sender: int, receiver: int) -> LinkSpeed:
        return bad if {sender, receiver} == {0, 1} else ETHERNET

    given_devices = devices([1e10, 1e10, 1e10])
    free = planned(*job(), given_devices, links, order_is_free=True)
    assert free.order[1] == 2
    assert [rank.node for rank in free.ranks] == [f"node{one}" for one in free.order]
    held = planned(*job(), given_devices, links)
    assert held.order == (0, 1, 2)
    assert held.step_s > free.step_s


@pytest.mark.slow
@pytest.mark.parametrize(
    ("width", "places"),
    [
        (32, 4),
        *(
            pytest.param(
                *more,
                marks=pytest.mark.skipif(not runs_all(), reason="seconds: set MNTRAIN_ALL_CASES"),
            )
            for more in ((8, 16), (2, 64))
        ),
    ],
)
def test_a_large_job_is_planned(width: int, places: int) -> None:
    recipe, config = job(
        *("model.layers=80", "train.batch_size=512", f"data_parallel.replicas={width}")
    )
    plan = planned(recipe, config, devices([1e10, 2e10] * 64, per_node=8), ETHERNET)
    assert len(plan.ranks) == places
    assert sum(split_of(plan)) == 80
    equal = next(one for one in plan.others if one.name == "equal split")
    assert equal.step_s is not None
    assert plan.step_s <= equal.step_s


def gain(ranks: int, microbatches: int) -> float:
    """Of eager zero bubble over eager 1F1B, where all passes take about the same time."""
    recipe, config = job(
        *(f"model.layers={4 * ranks}", "data.vocabulary_size=257"),
        *(f"pipeline.microbatches={microbatches}", "train.batch_size=16"),
    )
    given_devices = devices([1e10] * ranks)
    fixed = ["pipeline.split", "memory.checkpointing"]
    both = [
        planned(recipe, config, given_devices, fixed=[*fixed, *more])
        for more in (["pipeline.schedule"], [])
    ]
    assert both[1].chosen["pipeline.schedule"] == "eager-zero-bubble"
    assert both[1].deferred[0] == 0
    assert both[1].deferred[-1] > 0
    return both[0].step_s / both[1].step_s


@pytest.mark.parametrize(
    ("ranks", "microbatches", "least"), [(2, 4, 1.10), (4, 8, 1.15), (8, 16, 1.18)]
)
def test_zero_bubble_gains_about_what_it_does_in_theory(
    ranks: int, microbatches: int, least: float
) -> None:
    """1.15, 1.22 and 1.26 for passes of equal length; deferring costs a little here."""
    assert least < gain(ranks, microbatches) < least + 0.12
