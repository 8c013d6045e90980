"""TensorBoard reporter: writes event files beside the checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_mntrain.train.reports.base import NUMBERS, Run

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

FOLDER = "tensorboard"
"""In the directory of the checkpoints."""


class TensorBoard:
    """Scalars, the recipe as text, and the hyperparameters."""

    def __init__(self, run: Run, directory: Path) -> None:
        self._run = run
        self._directory = directory / FOLDER
        self._writer: SummaryWriter

    def begin(self) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # What an earlier attempt did beyond its last checkpoint is made again, and replaced.
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
        # At once: a rank may be killed, and goes on after a checkpoint that lies behind this.
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()

    def _add_hyperparameters(self) -> None:
        # add_hparams() would open a folder of its own and write a made-up value of each metric.
        from torch.utils.tensorboard.summary import hparams

        columns = dict.fromkeys(NUMBERS, 0.0)
        experiment, values, _ = hparams(self._run.hyperparameters, columns)  # type: ignore[no-untyped-call]
        writer: Any = self._writer.file_writer
        writer.add_summary(experiment)
        writer.add_summary(values)
