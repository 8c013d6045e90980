from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jupyter_mntrain.train.gemm import device_peak, measured_gemm
from jupyter_mntrain.train.optimiser import learning_rate_ratio
from jupyter_mntrain.train.sections import OptimizerSection, Recipe, TrainSection


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
    assert measured_gemm(torch.device("cpu"), torch.float32, size=64, seconds=0.01) > 1e6
    peak = device_peak(torch.device("cpu"), torch.float32)
    assert peak is not None
    assert peak.source == f"measured GEMM, float32, {torch.get_num_threads()} threads"


def test_a_device_that_cannot_multiply_has_no_peak() -> None:
    heard: list[tuple[str, float, float | None]] = []
    peak = device_peak(
        torch.device("cpu"),
        torch.float8_e4m3fn,
        lambda what, done, total=None, unit="": heard.append((what, done, total)),
    )
    assert peak is None
    assert heard == [("measuring the device", 0, None), ("measuring the device", 0, 0)]
