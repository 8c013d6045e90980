"""Settings by which an error is searched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.recipe.sections import Recipe, TrainSection
from jupyter_mntrain.telemetry.recorder import Recorder
from jupyter_mntrain.train.loop import Trainer, train
from jupyter_mntrain.train.world import World, debugging

FIELDS = (
    *("model.preset=llama-tiny", "data.vocabulary_size=300", "data.sequence_length=16"),
    *("pipeline.microbatches=2", "train.device=cpu", "train.steps=3", "train.batch_size=4"),
    *("optimizer.learning_rate=1e-9", "optimizer.warmup_steps=0", "output.at_end=false"),
)
SEARCHES = ("train.overfit_batch=true", "train.detect_anomaly=true", "train.deterministic=true")


def is_searching() -> tuple[bool, bool]:
    return torch.is_anomaly_enabled(), torch.are_deterministic_algorithms_enabled()


def test_every_step_takes_the_first_batch_and_torch_is_set_only_meanwhile(tmp_path: Path) -> None:
    source = tmp_path / "a.txt"
    source.write_text("".join(f"bubble {n} schedule {n * n} microbatch\n" for n in range(100)))
    seen: list[tuple[bool, bool]] = []

    def made_by(recipe: Recipe, world: World, recorder: Recorder) -> Trainer:
        seen.append(is_searching())
        return Trainer(recipe, world, recorder)

    def losses(*fields: str) -> tuple[float, ...]:
        recipe = parse_recipe("", (*FIELDS, f"data.source={source}", *fields))
        return train(recipe, made_by=made_by).losses

    usual, same = losses(), losses(*SEARCHES)
    assert seen == [(False, False), (True, True)]
    assert is_searching() == (False, False)
    assert usual[0] == same[0]
    assert same == pytest.approx([same[0]] * 3, abs=1e-6)
    assert abs(usual[1] - usual[0]) > 1e-4


def test_the_operation_that_gave_nan_is_named() -> None:
    def fail(**fields: Any) -> None:
        with debugging(TrainSection(**fields)):
            torch.sqrt(-torch.ones(1, requires_grad=True)).backward()

    fail()
    with pytest.raises(RuntimeError, match="SqrtBackward"):
        fail(detect_anomaly=True)
    assert is_searching() == (False, False)
