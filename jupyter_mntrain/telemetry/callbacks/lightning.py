"""Lightning callback, for the packages ``lightning`` and ``pytorch_lightning``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from jupyter_mntrain.model.errors import MissingLibraryError
from jupyter_mntrain.telemetry.callbacks.device_number import DeviceNumber, number_of
from jupyter_mntrain.telemetry.callbacks.loops import LoopRecorder

try:
    if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
        from pytorch_lightning import Callback  # if both are installed, the one in use
    else:
        from lightning.pytorch import Callback
except ImportError:
    try:
        from pytorch_lightning import Callback
    except ImportError as error:
        raise MissingLibraryError(
            "MntrainLightningCallback is a callback of Lightning, which is not installed here",
            fix="pip install lightning",
        ) from error

_WHOLE_GRADIENTS = ("SingleDevice", "DDP")
"""Prefixes of the strategies under which each rank holds all gradients."""


class MntrainLightningCallback(Callback):
    """Records a Lightning Trainer's steps on every rank; saves and stops on request.

    Used like this::

        Trainer(callbacks=[MntrainLightningCallback()]).fit(module, batches)

    The loss is each rank's own, as returned by ``training_step``; tokens are those of the batch,
    FLOPs those of the transformers decoder in the module. What a GPU computes is read one step
    late, so that it does not wait. Outside of an mntrain job it does nothing.

    Args:
        evaluation_metric: name under which the module logs its validation loss.
        checkpoint_directory: for requested saves; ``None`` = the job's own.
    """

    def __init__(
        self,
        *,
        evaluation_metric: str = "val_loss",
        checkpoint_directory: str | Path | None = None,
    ) -> None:
        super().__init__()
        self._loop = LoopRecorder()
        self._metric = evaluation_metric
        self._directory = None if checkpoint_directory is None else Path(checkpoint_directory)
        self._loss: torch.Tensor | None = None
        self._update: dict[str, float | DeviceNumber | None] = {}
        self._step = 0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        steps = trainer.estimated_stepping_batches
        self._step, self._loss = trainer.global_step, None
        self._loop.begin(
            pl_module,
            pl_module.device,
            precision=str(trainer.precision),
            total_steps=int(steps) if 0 < steps < float("inf") else None,
        )

    def on_train_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        self._loop.flush(waits=False)
        self._loop.batch(batch)

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        if self._loop.recorder is not None:
            self._update = {
                "learning_rate": _number(optimizer.param_groups[0]["lr"]),
                "grad_norm": _number(_gradient_norm(trainer, pl_module)),
            }

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self._loop.recorder is None:
            return
        # Lightning has divided it by the batches of a step.
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        if loss is not None:
            part = loss.detach().float().clone()
            self._loss = part if self._loss is None else self._loss + part
        if trainer.global_step == self._step:
            return
        self._step = trainer.global_step
        self._loop.step(self._step, loss=_number(self._loss), **self._update)
        self._loss, self._update = None, {}
        self._obey(trainer)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        loss = trainer.callback_metrics.get(self._metric)
        if not trainer.sanity_checking:
            self._loop.evaluated(None if loss is None else float(loss))

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._loop.end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._loop.end(False, f"{type(exception).__name__}: {exception}")  # noqa: FBT003

    def _obey(self, trainer: Any) -> None:
        wish = self._loop.ask()
        if wish.save:
            directory = self._directory or self._loop.checkpoint_directory
            trainer.save_checkpoint(directory / f"step-{self._step}.ckpt")
            self._loop.saved(self._step)
        if wish.stop:
            trainer.should_stop = True


def _number(value: float | torch.Tensor | None) -> float | DeviceNumber | None:
    return None if value is None else number_of(value)


def _gradient_norm(trainer: Any, pl_module: Any) -> torch.Tensor | None:
    """Return the gradient norm before clipping; ``None`` if gradients are split among ranks."""
    if not type(trainer.strategy).__name__.startswith(_WHOLE_GRADIENTS):
        return None
    gradients = [one.grad for one in pl_module.parameters() if one.grad is not None]
    if not gradients or any(isinstance(one, DTensor) for one in gradients):
        return None
    return torch.nn.utils.get_total_norm(gradients)
