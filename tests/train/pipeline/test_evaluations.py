"""Evaluations that end a run."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from jupyter_mntrain.launch.checkpoints.directory import CheckpointDirectory
from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.train import train
from jupyter_mntrain.train.pipeline.evaluation import best_step, evaluations_since_best


@pytest.mark.parametrize(
    ("losses", "best", "since"),
    [
        ({0: 5.0}, 0, 0),
        ({0: 5.0, 10: 4.0, 20: 3.0}, 20, 0),
        ({0: 5.0, 10: 4.0, 20: 4.0, 30: 4.5}, 10, 2),
        ({0: 5.0, 10: 4.0, 20: 6.0, 30: 3.0, 40: 3.5}, 30, 1),
        ({0: math.nan, 10: 4.0, 20: math.nan}, 10, 1),
        ({0: math.nan, 10: math.nan}, 0, 1),
    ],
)
def test_evaluations_are_counted_since_the_first_best(
    losses: dict[int, float], best: int, since: int
) -> None:
    assert best_step(losses) == best
    assert evaluations_since_best(losses) == since


def test_a_run_that_gets_worse_ends_early_and_saves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, kept = tmp_path / "a.txt", tmp_path / "kept"
    source.write_text("".join(f"bubble {n} schedule {n * n} microbatch\n" for n in range(200)))
    fields = (
        *("model.preset=llama-tiny", f"data.source={source}", "data.vocabulary_size=300"),
        *("data.sequence_length=16", "pipeline.microbatches=1", "train.device=cpu"),
        *("train.steps=9", "train.batch_size=4", "optimizer.learning_rate=10"),
        *("optimizer.warmup_steps=0", "evaluation.interval_steps=1", "evaluation.share=0.2"),
        *("evaluation.sequences=4", "evaluation.stop_after=2", "output.at_end=false"),
        *(f"checkpoint.directory={kept}", "checkpoint.interval_steps=1", "checkpoint.keep=1"),
        "checkpoint.keep_best=1",
    )
    run = train(parse_recipe("", fields))
    worse = run.evaluations
    assert len(run.losses) == max(worse) < 9
    assert evaluations_since_best(worse) == 2
    manifests = CheckpointDirectory(kept).manifests()
    best = min((step for step in worse if step), key=worse.__getitem__)
    assert sorted(manifests) == sorted({best, max(worse)}), "the best one, and the newest"
    assert {step: one.evaluation_loss for step, one in manifests.items()} == {
        step: worse[step] for step in manifests
    }
    assert capsys.readouterr().out.count("the run ends here") == 1
