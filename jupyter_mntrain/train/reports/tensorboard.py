"""TensorBoard reporter: writes event files next to the checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jupyter_mntrain.train.reports.base import NUMBERS, Run

FOLDER = "tensorboard"
"""Folder for event files, in the checkpoint directory."""


class TensorBoard:
    """Writes scalars, the recipe as text, and the hyperparameters."""

    def __init__(self, run: Run) -> None:
        from torch.utils.tensorboard import SummaryWriter

        assert run.directory is not None  # noqa: S101 - see jupyter_mntrain.train.reports._kinds
        # Steps after the checkpoint that was resumed are repeated; purge them.
        first = run.first_step
        self._writer = SummaryWriter(
            str(run.directory / FOLDER), purge_step=first + 1 if first else 0, flush_secs=2
        )
        indented = "\n".join(f"    {line}" for line in run.toml.splitlines())
        self._writer.add_text("recipe", indented, global_step=first)
        self._add_hyperparameters(run)
        self._writer.flush()

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, global_step=step)
        # Flush each step: the rank may be killed.
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()

    def _add_hyperparameters(self, run: Run) -> None:
        # add_hparams() would create another folder and write dummy values of each metric.
        from torch.utils.tensorboard.summary import hparams

        columns = dict.fromkeys(NUMBERS, 0.0)
        experiment, values, _ = hparams(run.hyperparameters, columns)  # type: ignore[no-untyped-call]
        writer: Any = self._writer.file_writer
        writer.add_summary(experiment)
        writer.add_summary(values)
