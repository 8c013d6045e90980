"""The command that compares every family, on one that is described."""

from __future__ import annotations

import subprocess
import sys

import pytest

KINDS = ("full", "LoRA", "LoRA-whole", "QLoRA")


@pytest.mark.slow
def test_a_family_is_equal_on_every_number_of_stages_with_and_without_adapters() -> None:
    words = [sys.executable, "-m", "tests.train.every_family", "--only", "granite", "--steps", "1"]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=500, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    rows = [line.split()[:3] for line in ended.stdout.splitlines() if line.startswith("granite")]
    ways = [["granite", str(stages), kind] for stages in (1, 2, 3) for kind in KINDS]
    assert rows == ways
