"""TensorBoard reporter: writes event files beside the checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_mntrain.train.reports.base import NUMBERS, Run

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

FOLDER = "tensorboard"
"""Folder for event files, in the checkpoint directory."""


class TensorBoard:
    """Writes scalars, the recipe as text, and the hyperparameters."""

    def __init__(self, run: Run, directory: Path) -> None:
        self._run = run
        self._directory = directory / FOLDER
        self._writer: SummaryWriter

    def begin(self) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # Steps after the checkpoint that was resumed are repeated; purge them.
        first = self._run.first_step
        self._writer = SummaryWriter(
            str(self._directory), purge_step=first + 1 if first else 0, flush_secs=2
        )
        indented = "\n".join(f"    {line}" for line in self._run.toml.splitlines())
        self._writer.add_text("recipe", indented, global_step=first)
        self._add_hyperparameters()
        self._writer.flush()

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, global_step=step)
        # Flush each step: the rank may be killed.
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()

    def _add_hyperparameters(self) -> None:
        # add_hparams() would create another folder and write dummy values of each metric.
        from torch.utils.tensorboard.summary import hparams

        columns = dict.fromkeys(NUMBERS, 0.0)
        experiment, values, _ = hparams(self._run.hyperparameters, columns)  # type: ignore[no-untyped-call]
        writer: Any = self._writer.file_writer
        writer.add_summary(experiment)
        writer.add_summary(values)
