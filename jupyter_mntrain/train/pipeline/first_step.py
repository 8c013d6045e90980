"""First step: runs one step of a recipe with random tokens and new weights, and keeps nothing.

Its ranks hold what they will hold in training: an optimizer has its state from the start, and every
sequence is full.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import psutil
import torch
from msgspec.structs import replace

from jupyter_mntrain.model.environment import CHECKPOINT_VARIABLE
from jupyter_mntrain.model.records.doctor.trial import TriedRank, written_line
from jupyter_mntrain.recipe.sections import (
    CheckpointSection,
    EvaluationSection,
    OutputSection,
    Recipe,
    ReportSection,
)
from jupyter_mntrain.telemetry.recorder import Recorder
from jupyter_mntrain.train.checkpoint.result import TrainResult
from jupyter_mntrain.train.loop import Trainer, train
from jupyter_mntrain.train.pipeline.steps import say
from jupyter_mntrain.train.world import World

PEAK_FIELD = "VmHWM:"


def try_first_step(recipe: Recipe, chosen: Mapping[str, str] | None = None) -> None:
    """Run the step as one of a job's ranks, and print what it took.

    Args:
        chosen: by the launch, as for :func:`~jupyter_mntrain.train.loop.train`.

    Raises:
        RecipeError, NotFiniteError: as for it.
    """
    train(recipe, chosen, made_by=FirstStep)


def first_step_of(recipe: Recipe) -> Recipe:
    """Return a recipe that makes only the first step of another, without saving or reporting."""
    return replace(
        recipe,
        train=replace(recipe.train, steps=1, epochs=None),
        optimizer=replace(recipe.optimizer, warmup_steps=0),
        checkpoint=CheckpointSection(interval_steps=0, at_end=False),
        evaluation=EvaluationSection(),
        output=OutputSection(at_end=False),
        report=ReportSection(to=()),
    )


class FirstStep(Trainer):
    """A trainer that makes one step.

    It checks that the model's tensors exist, but reads neither them nor data.
    """

    reads = False

    def __init__(self, recipe: Recipe, world: World, recorder: Recorder) -> None:
        os.environ.pop(CHECKPOINT_VARIABLE, None)
        self._before_bytes = psutil.Process().memory_info().rss
        super().__init__(first_step_of(recipe), world, recorder)
        self.syncs.are_held = False

    def run(self) -> TrainResult:
        result = super().run()
        told = TriedRank(result.rank, result.step_s[-1], self._peak_bytes())
        say(written_line(told))
        return result

    def _peak_bytes(self) -> int:
        if self.world.device.type == "cuda":
            # Of the whole GPU, which nothing else uses: CUDA and NCCL take some besides torch.
            free, total = torch.cuda.mem_get_info(self.world.device)
            return max(total - free, torch.cuda.max_memory_reserved(self.world.device))
        return max(0, _resident_peak_bytes() - self._before_bytes)


def _resident_peak_bytes() -> int:
    """Return this process's peak memory; ``ru_maxrss`` may be that of its parent."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(PEAK_FIELD):
            return int(line.split()[1]) << 10
    return psutil.Process().memory_info().rss  # a kernel that does not tell
