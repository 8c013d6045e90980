"""One step of the trainer on a fake card: nothing mixes tensors of a CPU and a GPU."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import Any

import pytest

from tests.gpu.fake_card import build_guard
from tests.gpu.ranks import ROOT

_COMMON = (
    *("model.preset=llama-tiny", "model.dtype=float32", "model.tie_embeddings=false"),
    *("model.layers=2", "data.sequence_length=16", "train.batch_size=4", "train.steps=4"),
    *("pipeline.schedule=1f1b", "pipeline.microbatches=2", "memory.loss=plain"),
    "optimizer.warmup_steps=0",
)
BFLOAT16 = "model.dtype=bfloat16"
ON_HOST = {"adafactor"}
"""Optimizers that keep the number of their step on the host."""

WAYS: dict[str, tuple[int, int, tuple[str, ...]]] = {
    "one rank": (0, 1, ()),
    "chunked, float32 master": (0, 1, ("memory.loss=chunked", BFLOAT16)),
    "plain bfloat16": (0, 1, (BFLOAT16, "optimizer.precision=plain")),
    "stochastic rounding": (0, 1, (BFLOAT16, "optimizer.precision=stochastic-rounding")),
    "adafactor": (0, 1, ("optimizer.kind=adafactor",)),
    "recomputation": (0, 1, ("memory.checkpointing=full",)),
    "fused backward": (0, 1, ("memory.fused_backward=true", "optimizer.clip_norm=0")),
    "first stage": (0, 2, ()),
    "last stage, tied": (1, 2, ("model.tie_embeddings=true",)),
    "replica": (1, 2, ("data_parallel.replicas=2",)),
    "sabotaged": (0, 1, ()),
}
"""Rank, number of ranks, and settings."""


pytestmark = pytest.mark.slow
"""It trains, and compiles the card: 20 s of CPU time."""


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What all ways say, traced in one process: importing torch takes longer than they do."""
    if shutil.which("g++") is None:
        pytest.skip("no g++ to compile the fake card with")
    cases = [
        {"name": name, "rank": rank, "ranks": ranks, "settings": [*_COMMON, *more]}
        for name, (rank, ranks, more) in WAYS.items()
    ]
    command = [sys.executable, "-m", "tests.gpu.fake_card"]
    command.append(str(build_guard(tmp_path_factory.mktemp("guard"))))
    done = subprocess.run(
        command, input=json.dumps(cases), cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = map(json.loads, done.stdout.splitlines())
    return {one["case"]: one for one in lines}


@pytest.mark.parametrize("name", [name for name in WAYS if name != "sabotaged"])
def test_a_step_stays_on_the_card(traced: dict[str, dict[str, Any]], name: str) -> None:
    told = traced[name]
    assert "error" not in told, told
    assert told["norm"] == "cuda:0"
    elsewhere = {key for key, device in told["devices"].items() if device != "cuda:0"}
    assert all(key.startswith("step/") for key in elsewhere), elsewhere
    assert not elsewhere or name in ON_HOST


def test_a_tensor_that_was_left_on_the_cpu_is_noticed(traced: dict[str, dict[str, Any]]) -> None:
    assert "at least two devices" in traced["sabotaged"]["error"]
