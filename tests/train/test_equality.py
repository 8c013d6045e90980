"""A pipeline trains exactly what one process trains."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import msgspec
import pytest
from filelock import FileLock

from tests.train.equality_cases import Outcome, cases

pytestmark = pytest.mark.slow

LOSS = 1e-6
EVALUATION = 5e-6
CHOICE = 1e-4
GRADIENT = 1e-5
TRAINED = 2e-5
"""Loss and weights after four clipped AdamW steps, where rounding has had time to grow."""

TIMEOUT_S = 600

_PARAMETERS = [(world_size, name) for world_size in (1, 2, 3, 4) for name in cases(world_size)]


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int, str], Outcome]:
    """All cases of a world size run in one torchrun; the first test of any worker pays."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    @cache
    def run(world_size: int) -> dict[str, Outcome]:
        path = shared / f"world-{world_size}.json"
        with FileLock(path.with_suffix(".lock")):
            if not path.exists():
                _run_all_cases(world_size, shared)
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Outcome])

    return lambda world_size, name: run(world_size)[name]


def _run_all_cases(world_size: int, directory: Path) -> None:
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
        *("--local-addr=127.0.0.1", f"--nproc-per-node={world_size}"),
        *("-m", "tests.train.equality", str(directory)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.parametrize(("world_size", "name"), _PARAMETERS)
def test_pipeline_equals_one_process(
    outcome: Callable[[int, str], Outcome], world_size: int, name: str
) -> None:
    result = outcome(world_size, name)
    assert result.evaluation_error <= EVALUATION
    assert result.choice_error <= CHOICE
    assert result.loss_error <= LOSS
    assert result.gradient_error <= GRADIENT, result.worst
    assert result.trained_loss_error <= TRAINED
    assert result.trained_weight_error <= TRAINED
    assert result.sent_bytes == result.expected_bytes
