"""Check 9 reads what the benchmark writes, and compares it with the goals."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.gpu import MODELS, PAIRS, SIDES
from tests.gpu.acceptance import LIMIT_S
from tests.gpu.checks import CHECKS, speed
from tests.gpu.checks.speed import BARE, NEEDED_GB, OURS, TAKES_S, judge_mfu, judge_ratio
from tests.gpu.findings import Bench, Item
from tests.standin.cards import Cards, install

PEAK = 989e12


def told(mfu: float, loss: float = 12.0) -> dict[str, Any]:
    """Figures of a side with this MFU."""
    return {
        "tokens_per_s": mfu * PEAK / 1e9,
        "losses": [loss],
        "flops_per_token": 1e9,
        "peak_flops_per_s": PEAK,
        "peak_source": "data sheet",
        "gemm_flops_per_s": 0.8 * PEAK,
        "memory_bytes": 1 << 30,
    }


def test_it_asks_the_benchmark_for_what_that_has() -> None:
    assert set(NEEDED_GB) <= set(MODELS)
    assert {BARE, OURS} <= set(SIDES)
    assert PAIRS[OURS] == BARE


def test_all_sides_fit_into_its_time_and_its_time_into_that_of_all_checks() -> None:
    (own,) = (check for check in CHECKS if check.number == 9)
    assert sum(TAKES_S.values()) <= own.seconds <= LIMIT_S


@pytest.mark.parametrize(
    ("mfu", "has_goal", "reason"),
    [(0.56, True, ""), (0.45, False, ""), (0.45, True, "MFU 45.0% is below 50%")],
)
def test_goal_of_the_mfu(mfu: float, has_goal: bool, reason: str) -> None:
    item = judge_mfu("1b", told(mfu), has_goal=has_goal)
    assert (item.state, item.reason) == ("failed" if reason else "held", reason)


@pytest.mark.parametrize(
    ("mfu", "loss", "reason"),
    [
        (0.495, 12.1, ""),
        (0.45, 12.0, "0.900 of its speed, below 0.98"),
        (0.56, 9.0, "it begins with a loss of 9, and the bare loop with 12"),
        (0.56, math.nan, "it begins with a loss of nan, and the bare loop with 12"),
    ],
)
def test_goal_of_the_ratio(mfu: float, loss: float, reason: str) -> None:
    item = judge_ratio("1b against a bare loop", told(mfu, loss), told(0.5))
    assert (item.state, item.reason) == ("failed" if reason else "held", reason)


def checked(monkeypatch: pytest.MonkeyPatch, directory: Path, left_s: float) -> dict[str, Item]:
    """Items of the check on a stand-in's card, whose sides take as long as expected."""
    now = [0.0]

    def measured(_bench: Bench, size: str, side: str) -> dict[str, Any]:
        now[0] += TAKES_S[size, side]
        return told(0.55 if side == OURS else 0.5)

    install(monkeypatch, Cards())
    monkeypatch.setattr(speed, "NEEDED_GB", dict.fromkeys(NEEDED_GB, 0.0))
    monkeypatch.setattr(speed, "_measured", measured)
    monkeypatch.setattr(speed, "time", SimpleNamespace(monotonic=lambda: now[0]))
    bench = Bench("cuda", 1, directory, until=left_s)
    return {item.name: item for item in speed.check_speed(bench)}


def test_a_side_that_could_not_end_in_time_is_skipped_with_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = checked(monkeypatch, tmp_path, left_s=230)
    states = {name: item.state for name, item in found.items()}
    last = "8b against a bare loop"
    assert states == dict.fromkeys(("1b", "8b", "1b against a bare loop"), "held") | {
        last: "skipped"
    }
    assert found[last].reason == (
        "takes about 150 s, and 20 s are left: run python -m benchmarks.gpu --model 8b"
    )


def test_with_enough_time_all_sides_are_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = checked(monkeypatch, tmp_path, left_s=sum(TAKES_S.values()))
    assert {item.state for item in found.values()} == {"held"}
    assert found["8b against a bare loop"].figures["of_bare_compiled"] == pytest.approx(1.1)
