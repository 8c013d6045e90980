from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from jupyter_mntrain.recipe.learning_rate import learning_rate_ratio
from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.recipe.sections import OptimizerSection, Recipe, TrainSection
from jupyter_mntrain.telemetry.device.gemm import device_peak, measured_gemm
from jupyter_mntrain.train.model.decoder import EMBEDDING, HEAD
from jupyter_mntrain.train.optimizer.optimizer import Optimizer
from jupyter_mntrain.train.optimizer.precision import round_stochastically


def ratios(steps: int, warmup_steps: int, min_ratio: float) -> list[float]:
    return [
        learning_rate_ratio(step, steps=steps, warmup_steps=warmup_steps, min_ratio=min_ratio)
        for step in range(steps)
    ]


def test_up_in_a_line_then_down_a_cosine() -> None:
    rate = ratios(steps=101 + 4, warmup_steps=4, min_ratio=0.1)
    assert rate[:4] == [0.25, 0.5, 0.75, 1.0]
    assert rate[4] == 1.0
    assert rate[4 + 50] == pytest.approx(0.55)
    assert rate[-1] == pytest.approx(0.1)


@given(steps=st.integers(1, 300), share=st.floats(0, 1), min_ratio=st.floats(0, 1, allow_nan=False))
def test_never_zero_at_first_and_never_above_one(
    steps: int, share: float, min_ratio: float
) -> None:
    warmup_steps = int(steps * share)
    rate = ratios(steps, warmup_steps, min_ratio)
    assert rate[0] > 0
    assert max(rate) <= 1.0
    up, down = rate[:warmup_steps], rate[warmup_steps:]
    assert up == sorted(up)
    assert down == sorted(down, reverse=True)
    assert not down or down[-1] >= min_ratio - 1e-9


def test_the_default_warm_up_is_a_tenth_and_at_most_a_hundred_steps() -> None:
    def warmup(steps: int, given: int | None = None) -> int:
        section = OptimizerSection(warmup_steps=given)
        return Recipe(train=TrainSection(steps=steps), optimizer=section).warmup_steps

    assert [warmup(5), warmup(50), warmup(100_000), warmup(50, 0)] == [0, 5, 100, 0]


def test_a_measured_peak_says_so() -> None:
    before = torch.get_rng_state()
    assert measured_gemm(torch.device("cpu"), torch.float32, size=64, seconds=0.01) > 1e6
    assert torch.equal(torch.get_rng_state(), before), "a run that goes on has its own back"
    threads = torch.get_num_threads()
    try:
        for count, words in ((1, "1 thread"), (2, "2 threads")):
            torch.set_num_threads(count)
            peak = device_peak(torch.device("cpu"), torch.float32)
            assert peak is not None
            assert peak.source.partition(", alongside")[0] == f"measured GEMM, float32, {words}"
    finally:
        torch.set_num_threads(threads)


def test_a_device_that_cannot_multiply_has_no_peak() -> None:
    heard: list[tuple[str, float, float | None]] = []
    peak = device_peak(
        torch.device("cpu"),
        torch.float8_e4m3fn,
        lambda what, done, total=None, unit="": heard.append((what, done, total)),
    )
    assert peak is None
    assert heard == [("measuring the device", 0, None), ("measuring the device", 0, 0)]


def trained(
    weights: Mapping[str, torch.Tensor], *overrides: str, steps: int = 1, tied: bool = False
) -> dict[str, nn.Parameter]:
    """Weights after steps whose gradients depend on the step alone."""
    fields = ("optimizer.warmup_steps=0", "optimizer.clip_norm=0", "train.steps=1000", *overrides)
    parameters = {name: nn.Parameter(one.clone()) for name, one in weights.items()}
    counted = {name: one for name, one in parameters.items() if not (tied and name == HEAD)}
    optimizer = Optimizer(parse_recipe("", fields), parameters, counted)
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        drawn = torch.randn(next(iter(weights.values())).shape, generator=generator)
        for one in parameters.values():
            one.grad = drawn.to(one.dtype)
        optimizer.update(torch.tensor(1.0))
        assert all(one.grad is None for one in parameters.values())
    return parameters


BFLOAT16 = "model.dtype=bfloat16"
ROUNDING = (BFLOAT16, "optimizer.precision=stochastic-rounding")


def rounded(exact: torch.Tensor, key: int = 7) -> torch.Tensor:
    narrow = torch.empty(exact.shape, dtype=torch.bfloat16)
    round_stochastically([narrow], [exact], torch.tensor([key], dtype=torch.int32))
    return narrow


def test_rounding_by_chance_is_right_on_average_and_exact_where_it_can_be() -> None:
    found = rounded(torch.full((1000, 500), 1 + 1 / 128 / 5))  # a fifth of the way to the next
    assert set(found.flatten().tolist()) == {1.0, 1 + 1 / 128}
    assert found.double().mean().item() == pytest.approx(1 + 1 / 128 / 5, abs=2e-5)
    fits = torch.tensor([0.0, -2.5, float("inf"), -float("inf"), 3.3895313892515355e38])
    assert rounded(fits).tolist() == fits.tolist()
    assert rounded(fits[:1] / 0).isnan().all()


def test_updates_too_small_for_bfloat16_are_lost_unless_rounded_by_chance_or_remembered() -> None:
    ones = {"a.weight": torch.ones(64, 64, dtype=torch.bfloat16)}
    tiny = ("optimizer.learning_rate=1e-5", "optimizer.weight_decay=10", "optimizer.min_ratio=1")
    steps, expected = 30, 1 - 30 * 1e-5 * 10
    plain = trained(ones, BFLOAT16, "optimizer.precision=plain", *tiny, steps=steps)["a.weight"]
    assert (plain == 1).all()
    rounded = trained(ones, *ROUNDING, *tiny, steps=steps)["a.weight"]
    assert rounded.double().mean().item() == pytest.approx(expected, abs=2e-4)
    master = trained(ones, BFLOAT16, *tiny, steps=steps)["a.weight"]
    assert master.double().mean().item() == pytest.approx(expected, abs=2e-3)


@pytest.mark.parametrize("kind", ["adamw", "adafactor"])
def test_a_master_copy_is_a_float32_run_to_the_rounding_of_bfloat16(kind: str) -> None:
    weights = {"a.weight": torch.randn(16, 8).bfloat16()}
    wide = {name: one.float() for name, one in weights.items()}
    narrow = trained(weights, BFLOAT16, f"optimizer.kind={kind}", steps=50)["a.weight"]
    exact = trained(wide, f"optimizer.kind={kind}", steps=50)["a.weight"]
    assert narrow.dtype == torch.bfloat16
    assert torch.allclose(narrow.float(), exact, rtol=1 / 128, atol=1e-4)
    assert not torch.allclose(exact, wide["a.weight"], atol=1e-3)


def test_what_is_rounded_by_chance_depends_on_seed_step_and_name_alone() -> None:
    one = torch.randn(32, 8).bfloat16()
    together = trained({"a.weight": one, "b.weight": one}, *ROUNDING, steps=3)
    alone = trained({"b.weight": one}, *ROUNDING, steps=3)
    assert together["b.weight"].equal(alone["b.weight"])
    assert not together["a.weight"].equal(together["b.weight"])
    other = trained({"b.weight": one}, *ROUNDING, "train.seed=1", steps=3)
    assert not other["b.weight"].equal(alone["b.weight"])


@pytest.mark.parametrize("parts", [(1221,), (600, 621), (1, 1220)])
def test_the_norm_of_bfloat16_gradients_does_not_depend_on_their_split(
    parts: tuple[int, ...],
) -> None:
    squares = 0.0
    for count in parts:  # one rank's rows after the other's
        weight = nn.Parameter(torch.zeros(count, dtype=torch.bfloat16))
        optimizer = Optimizer(parse_recipe("", [BFLOAT16]), {"a": weight}, {"a": weight})
        weight.grad = torch.full_like(weight, 64.0)
        squares += optimizer.gradient_squares().sum().item()
    norm = 64 * math.sqrt(1221)
    assert torch.tensor(norm).bfloat16().item() == 2240
    assert math.sqrt(squares) == pytest.approx(norm, rel=1e-6)  # 2236.3


def test_both_copies_of_a_tied_embedding_stay_equal() -> None:
    one = torch.randn(32, 8).bfloat16()
    first = trained({EMBEDDING: one}, *ROUNDING, steps=3)[EMBEDDING]
    last = trained({HEAD: one}, *ROUNDING, steps=3, tied=True)[HEAD]
    assert first.equal(last)
