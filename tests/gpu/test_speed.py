"""Check 9 reads what the benchmark writes, and compares it with the goals."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.gpu import MODELS, PAIRS, SIDES, summary
from tests.gpu.checks.speed import BARE, NEEDED_GB, OURS, judge

PEAK = 989e12


def told(mfu: float, ratio: float) -> dict[str, Any]:
    """Figures of a run in which our side has this MFU, and this ratio to the bare loop."""

    def one(rate: float) -> dict[str, Any]:
        return {
            "tokens_per_s": rate,
            "flops_per_token": 1e9,
            "peak_flops_per_s": PEAK,
            "peak_source": "data sheet",
            "gemm_flops_per_s": 0.8 * PEAK,
            "memory_bytes": 1 << 30,
        }

    rate = mfu * PEAK / 1e9
    return summary({BARE: [one(rate / ratio)], OURS: [one(rate)]})


def test_it_asks_the_benchmark_for_what_that_has() -> None:
    assert set(NEEDED_GB) <= set(MODELS)
    assert {BARE, OURS} <= set(SIDES)
    assert PAIRS[OURS] == BARE


@pytest.mark.parametrize(
    ("mfu", "ratio", "has_goal", "reason"),
    [
        (0.56, 0.99, True, ""),
        (0.45, 0.99, False, ""),
        (0.45, 0.99, True, "MFU 45.0% is below 50%"),
        (0.56, 0.9, True, "0.900 of a bare compiled loop's speed, below 0.98"),
    ],
)
def test_goals(mfu: float, ratio: float, has_goal: bool, reason: str) -> None:
    item = judge("1b", told(mfu, ratio), has_goal=has_goal)
    assert (item.state, item.reason or "") == ("failed" if reason else "held", reason)


def test_a_side_without_a_figure_failed() -> None:
    found = told(0.5, 1.0)
    found["ratios"] = {}
    assert judge("8b", found, has_goal=True).state == "failed"
