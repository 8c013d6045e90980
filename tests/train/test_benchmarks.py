"""Benchmarks: what they report, also on a machine without the required hardware."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import SIDES, complaints, summary
from jupyter_mntrain.model.environment import PEAK_VARIABLE
from tests.searches import runs_all


def gpu(*words: str) -> subprocess.CompletedProcess[str]:
    """The benchmark of a GPU on a machine without one."""
    # Else the peak is measured: of a busy machine, less than what is reached later.
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    environment |= {PEAK_VARIABLE: "1000"}
    command = [sys.executable, "-m", "benchmarks.gpu", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_without_a_card_it_says_in_one_line_that_it_needs_one() -> None:
    done = gpu()
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "finds no CUDA device" in done.stderr
    assert not done.stdout


@pytest.mark.slow
@pytest.mark.skipif(not runs_all(), reason="it takes a minute: set MNTRAIN_ALL_CASES")
def test_without_a_card_a_tiny_model_goes_the_same_way() -> None:
    done = gpu("--cpu", "--small", "--repeats", "1", "--steps", "1")
    assert done.returncode in {0, 1}, done.stderr
    for side in SIDES:
        assert f"small {side:13}" in done.stdout
    assert "small ours is" in done.stdout
    assert "small ours compiled is" in done.stdout


@pytest.mark.slow
def test_an_mfu_below_the_limit_is_told_in_one_line_and_all_figures_are_written(
    tmp_path: Path,
) -> None:
    words = ("--cpu", "--small", "--repeats", "1", "--steps", "1", "--side", "ours")
    done = gpu(*words, "--min-mfu", "1", "--json", str(tmp_path / "found.json"))
    assert done.returncode == 1
    assert done.stderr.startswith("gpu: small: ours reaches an MFU of ")
    assert done.stderr.count("\n") == 1
    side = json.loads((tmp_path / "found.json").read_text())["small"]["sides"]["ours"]
    assert side["mfu_of_gemm"] > 0
    assert len(side["runs"][0]["losses"]) == 4


def told(tokens_per_s: float, peak: float | None = 1000.0) -> dict[str, Any]:
    """What a process tells that needs 2 FLOPs per token on a device of 800 FLOPs per second."""
    return {
        "tokens_per_s": tokens_per_s,
        "flops_per_token": 2.0,
        "peak_flops_per_s": peak,
        "peak_source": peak and "data sheet",
        "gemm_flops_per_s": 800.0,
        "memory_bytes": 1,
    }


def test_each_side_is_compared_with_its_own_bare_loop_by_medians() -> None:
    runs = {
        "bare": [told(100), told(100), told(900)],
        "ours": [told(1), told(120), told(110)],
        "bare compiled": [told(200)],
        "ours compiled": [told(190)],
        "two stages": [],
    }
    found = summary(runs)
    assert found["ratios"] == {"ours": 1.1, "ours compiled": 0.95}
    assert found["sides"]["ours"]["mfu"] == 0.22
    assert found["sides"]["ours"]["mfu_of_gemm"] == 0.275
    assert list(found["sides"]) == list(SIDES[:4])
    (slow,) = complaints({"1b": found}, None)
    assert "ours compiled is 0.950 x bare compiled" in slow


@pytest.mark.parametrize(("least", "missed"), [(0.37, 0), (0.38, 0), (0.39, 1)])
def test_the_best_side_of_the_trainer_has_to_reach_the_mfu(least: float, missed: int) -> None:
    found = {"1b": summary({"ours": [told(120)], "ours compiled": [told(190)]})}
    assert len(complaints(found, least)) == missed


def test_an_unknown_mfu_reaches_no_limit() -> None:
    found = {"1b": summary({"ours": [told(120, peak=None)]})}
    assert found["1b"]["sides"]["ours"]["mfu"] is None
    assert len(complaints(found, 0.1)) == 1
    assert not complaints(found, None)
