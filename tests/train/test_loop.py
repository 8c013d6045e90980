"""Training as a function, in this process."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch.distributed as dist

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.train import TrainResult, parse_recipe, train

STEPS = 8


def result(text: Path, *overrides: str) -> TrainResult:
    changes = [
        *("model.preset=llama-tiny", f"data.source={text}", "data.vocabulary_size=300"),
        *("data.sequence_length=16", "pipeline.microbatches=2", "train.device=cpu"),
        *(f"train.steps={STEPS}", "train.batch_size=4", "optimizer.warmup_steps=0"),
    ]
    return train(parse_recipe("", [*changes, *overrides]))


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "a.txt"
    path.write_text("".join(f"bubble {n} schedule {n * n} microbatch\n" for n in range(400)))
    return path


def test_the_loss_falls_and_a_second_run_is_the_same(text: Path) -> None:
    first = result(text)
    assert (first.rank, first.world_size, first.tokens_per_step) == (0, 1, 64)
    assert len(first.losses) == len(first.gradient_norms) == len(first.step_s) == STEPS
    assert first.losses[0] == pytest.approx(5.7, abs=0.1)  # ln(300)
    assert first.losses[-1] < first.losses[0] - 0.3
    assert result(text).losses == first.losses


def test_microbatches_and_accumulation_do_not_change_what_is_learned(text: Path) -> None:
    whole = result(text, "pipeline.microbatches=1")
    for change in ("pipeline.microbatches=4", "train.accumulation=2"):
        assert result(text, change).losses == pytest.approx(whole.losses, rel=1e-5)


def test_seeds_change_model_and_data_apart(text: Path) -> None:
    runs = [result(text, *c) for c in ([], ["train.seed=1"], ["data.seed=1"])]
    assert len({run.losses for run in runs}) == 3


def test_bfloat16_trains(text: Path) -> None:
    losses = result(text, "model.dtype=bfloat16").losses
    assert losses[-1] < losses[0] - 0.3


def test_clipping_limits_the_step(text: Path) -> None:
    # With a tiny limit AdamW still normalises; without decay or momentum the norms stay reported.
    free, clipped = result(text), result(text, "optimizer.clip_norm=1e-6")
    assert free.gradient_norms[0] == clipped.gradient_norms[0]
    assert free.losses != clipped.losses


def test_a_refusal_leaves_no_process_group(text: Path) -> None:
    with pytest.raises(RecipeError, match="no such file"):
        result(text, "data.source=/nowhere")
    assert not dist.is_initialized()
    assert result(text).losses
    assert not dist.is_initialized()
