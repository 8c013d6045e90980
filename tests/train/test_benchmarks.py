"""Benchmarks: what they report on a machine without the required hardware."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.searches import runs_all

pytestmark = pytest.mark.slow


def gpu(*words: str) -> subprocess.CompletedProcess[str]:
    """The benchmark of a GPU on a machine without one."""
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.gpu", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_without_a_card_it_says_in_one_line_that_it_needs_one() -> None:
    done = gpu()
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "finds no CUDA device" in done.stderr
    assert not done.stdout


@pytest.mark.skipif(not runs_all(), reason="it takes a minute: set MNTRAIN_ALL_CASES")
def test_without_a_card_a_tiny_model_goes_the_same_way() -> None:
    done = gpu("--cpu", "--small", "--repeats", "1", "--steps", "1")
    assert done.returncode in {0, 1}, done.stderr
    for side in ("bare", "ours", "two stages"):
        assert f"small {side:10}" in done.stdout
    assert "x the bare loop" in done.stdout
