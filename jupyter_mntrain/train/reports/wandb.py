"""Weights & Biases reporter, configured by its own environment variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from jupyter_mntrain.train.reports.background import CLOSE_S
from jupyter_mntrain.train.reports.base import Run


class WandB:
    """A run of its own per job, which later attempts of the job go on with."""

    def __init__(self, run: Run, environment: Mapping[str, str] = os.environ) -> None:
        self._run = run
        self._environment = environment
        self._theirs: Any = None

    def begin(self) -> None:
        import wandb

        run = self._run
        # Beside the checkpoints: an attempt's own folder goes with the attempt.
        has_place = run.directory is None or "WANDB_DIR" in self._environment
        self._theirs = wandb.init(
            project=run.project,
            name=run.name,
            id=run.job,
            resume="allow" if run.job else None,
            config=run.hyperparameters,
            dir=None if has_place else str(run.directory),
            # The job's log stays as it is; and at the end nobody waits for a network for ever.
            settings=wandb.Settings(console="off", finish_timeout=CLOSE_S),
        )

    def log(self, step: int, values: Mapping[str, float]) -> None:
        # It takes no step twice. Those that are made again after a checkpoint come out the same.
        if step >= self._theirs.step:
            self._theirs.log(dict(values), step=step)

    def close(self) -> None:
        self._theirs.finish()
