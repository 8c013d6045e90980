"""Fixtures of the callback tests: a job's environment without a job, and a tiny decoder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import LlamaConfig, LlamaForCausalLM

from jupyter_mntrain.model.environment import CHECKPOINT_VARIABLE, METRICS_VARIABLE
from jupyter_mntrain.model.records.metrics import RankEvaluation, Sample, sample_decoder

TINY = {
    "vocab_size": 64,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}

Read = Callable[[], Sequence[Sample]]


class Reads(TorchDispatchMode):
    """Counts the numbers that are read from tensors, each of them a wait for a GPU."""

    count = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.count += function is torch.ops.aten._local_scalar_dense.default
        return function(*args, **(kwargs or {}))


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of samples of a job of one rank."""
    directory = tmp_path / "metrics"
    directory.mkdir()
    monkeypatch.setenv(METRICS_VARIABLE, str(directory))
    monkeypatch.setenv(CHECKPOINT_VARIABLE, str(tmp_path / "checkpoints"))
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return directory


@pytest.fixture
def read(job: Path) -> Read:
    def lines() -> Sequence[Sample]:
        written = (job / "rank-0.ndjson").read_bytes().splitlines()
        return [sample_decoder.decode(line) for line in written]

    return lines


def evaluations(read: Read) -> list[RankEvaluation]:
    return [one for one in read() if isinstance(one, RankEvaluation)]


@pytest.fixture
def decoder() -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**TINY))
