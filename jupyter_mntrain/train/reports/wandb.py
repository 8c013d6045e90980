"""Weights & Biases reporter; W&B's own environment variables configure it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from jupyter_mntrain.train.reports.background import CLOSE_S
from jupyter_mntrain.train.reports.base import Run


class WandB:
    """Logs one run per job; later attempts of the job continue it."""

    def __init__(self, run: Run) -> None:
        import wandb

        # Next to the checkpoints: the working directory is deleted with the attempt.
        has_place = run.directory is None or "WANDB_DIR" in os.environ
        self._theirs: Any = wandb.init(
            project=run.project,
            name=run.name,
            id=run.job,
            resume="allow" if run.job else None,
            config=run.hyperparameters,
            dir=None if has_place else str(run.directory),
            # Leave the job's log alone, and do not wait for the network forever at the end.
            settings=wandb.Settings(console="off", finish_timeout=CLOSE_S),
        )

    def log(self, step: int, values: Mapping[str, float]) -> None:
        # W&B rejects repeated steps. Those repeated after a checkpoint have the same values.
        if step >= self._theirs.step:
            self._theirs.log(dict(values), step=step)

    def close(self) -> None:
        self._theirs.finish()
