"""Built-in recipes: each is valid, and has a memory estimate."""

from __future__ import annotations

import pytest

from jupyter_mntrain.recipe.builtin import BUILT_IN, CONFIGS, built_in
from jupyter_mntrain.recipe.memory import forecast
from jupyter_mntrain.recipe.parse import check, parse_recipe
from jupyter_mntrain.telemetry import known_peak

GB = 1e9


@pytest.mark.parametrize("one", BUILT_IN, ids=lambda one: one.name)
def test_each_can_run_on_as_many_ranks_as_it_is_made_for(one) -> None:
    recipe = one.recipe
    layers = CONFIGS[one.size]["num_hidden_layers"] if one.size else None
    check(recipe, one.gpus, layers=layers)
    assert f"{one.gpus}gpu" in one.name or one.name in {"quick-check", "overfit-batch"}


def test_unlike_cards_take_the_same_time() -> None:
    recipe, config = built_in("7b-2gpu-3090-4090").recipe, CONFIGS["7b"]
    head = config["vocab_size"] / (4 * config["hidden_size"] + 3 * config["intermediate_size"])
    layers = [*recipe.pipeline.split]
    assert sum(layers) == config["num_hidden_layers"]
    layers[-1] += head
    cards = ("NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 4090")
    times = [
        n / known_peak(card, "bfloat16").flops_per_s for n, card in zip(layers, cards, strict=True)
    ]
    assert max(times) / min(times) < 1.05


def test_names_are_told_apart() -> None:
    names = [one.name for one in BUILT_IN]
    assert len(set(names)) == len(names)
    assert built_in("7b-4gpu-eager").recipe.schedule == "eager-1f1b"
    assert built_in("8b") is None


@pytest.mark.parametrize(
    ("name", "most_gb"),
    [
        ("1b-1gpu", 16),
        ("7b-1gpu", 16),
        ("7b-1gpu-packed", 24),
        ("7b-2gpu-eager", 16),
        ("7b-2gpu-interleaved-packed", 24),
        ("7b-4gpu-eager", 12),
        ("7b-4gpu-adamw", 24),
        ("7b-4gpu-adamw-4bit", 12),
        ("8b-1gpu-qlora", 12),
        ("7b-4gpu-float32", 24),
        ("7b-3gpu-eager", 16),
        ("7b-6gpu-eager", 12),
        ("7b-2gpu-3090-4090", 24),
        ("8b-2gpu-dgx-sparks", 100),
    ],
)
def test_they_fit_the_cards_that_people_have(name: str, most_gb: float) -> None:
    estimate = built_in(name).estimate()
    # CUDA, NCCL and what is just being computed take a gigabyte.
    assert estimate.total < (most_gb - 1) * GB, str(estimate)


def test_shards_split_the_optimizer_and_add_their_rows() -> None:
    whole = parse_recipe("", ["model.dtype=bfloat16"])
    split = parse_recipe("", ["model.dtype=bfloat16", "data_parallel.shards=2"])
    one, half = forecast(whole, CONFIGS["1b"], 2)[0], forecast(split, CONFIGS["1b"], 4)[0]
    assert half.optimizer == pytest.approx(one.optimizer / 2, rel=1e-6)
    assert half.weights == pytest.approx(one.weights * 1.5, rel=1e-6)
    assert half.gradients == pytest.approx(one.gradients * 1.5, rel=1e-6)


def test_shards_that_are_dropped_after_each_pass_leave_few_layers() -> None:
    words = ["model.dtype=bfloat16", "data_parallel.shards=2"]
    kept, config = parse_recipe("", words), CONFIGS["1b"]
    dropped = parse_recipe("", [*words, "data_parallel.reshard_after_forward=true"])
    one, few = forecast(kept, config, 2)[0], forecast(dropped, config, 2)[0]
    whole = one.weights / 1.5
    ends = 2 * config["vocab_size"] * config["hidden_size"]  # tied
    layers = (whole - ends) * 2 / config["num_hidden_layers"]
    assert few.weights == pytest.approx(whole / 2 + ends + layers, rel=1e-3)
    assert few.gradients == few.weights
    assert few.optimizer == one.optimizer


def test_all_weights_are_somewhere_once() -> None:
    for ranks, schedule in ((1, "1f1b"), (2, "zbv"), (4, "interleaved-1f1b"), (4, "eager-1f1b")):
        recipe = parse_recipe(f'[pipeline]\nschedule = "{schedule}"\nmicrobatches = 16')
        held = forecast(recipe, CONFIGS["7b"], ranks)
        assert sum(one.weights for one in held) == 4 * 6_738_415_616


@pytest.mark.parametrize("one", BUILT_IN, ids=lambda one: one.name)
def test_each_file_says_what_it_is_for(one) -> None:
    assert one.about
    assert one.text.startswith(f"# {one.about}.\n# ")
