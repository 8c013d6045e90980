"""Runs with reports, for the report tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.train import TrainResult, parse_recipe, train
from jupyter_mntrain.train.reports.base import Run
from jupyter_mntrain.train.world import World

STEPS = 6
RANK_0 = World(rank=0, local_rank=0, size=1, host="node1", device=torch.device("cpu"))
STEP = {"loss": 2.5, "grad_norm": 0.75, "learning_rate": 1e-3, "step_s": 0.5}


def recipe_of(text: Path, *overrides: str) -> Recipe:
    changes = [
        *("model.preset=llama-tiny", f"data.source={text}", "data.vocabulary_size=300"),
        *("data.sequence_length=16", "pipeline.microbatches=2", "train.device=cpu"),
        *(f"train.steps={STEPS}", "train.batch_size=4", "optimizer.warmup_steps=0"),
        *("evaluation.interval_steps=2", "evaluation.share=0.2", "evaluation.sequences=2"),
    ]
    return parse_recipe("", [*changes, *overrides])


def result(text: Path, *overrides: str) -> TrainResult:
    return train(recipe_of(text, *overrides))


def run_of(directory: Path | None = None, job: str | None = "j-00000001", **report: Any) -> Run:
    recipe = parse_recipe("", [f"report.{name}={value}" for name, value in report.items()])
    return Run(recipe, job, directory, first_step=0)
