"""Accelerate tracker: records an Accelerate training loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.utils.hooks import RemovableHandle

from jupyter_mntrain.model.errors import MissingLibraryError
from jupyter_mntrain.telemetry.callbacks.device_number import number_of
from jupyter_mntrain.telemetry.callbacks.loops import LoopRecorder
from jupyter_mntrain.telemetry.callbacks.requests import Wish
from jupyter_mntrain.telemetry.recorder import Recorder, as_float

try:
    from accelerate.state import AcceleratorState
    from accelerate.tracking import GeneralTracker
except ImportError as error:
    raise MissingLibraryError(
        "MntrainTracker is a tracker of Accelerate, which is not installed here",
        fix="pip install accelerate",
    ) from error

_FIELDS = {
    "loss": "loss",
    "train_loss": "loss",
    "tokens": "tokens",
    "learning_rate": "learning_rate",
    "lr": "learning_rate",
    "grad_norm": "grad_norm",
    "evaluation_loss": "evaluation_loss",
    "eval_loss": "evaluation_loss",
    "val_loss": "evaluation_loss",
}
"""Fields of a sample, by the name that loops log them under; other values are ignored."""

_TOTALS = ("total_steps", "max_steps", "max_train_steps", "num_training_steps")


class MntrainTracker(GeneralTracker):
    """Records an Accelerate loop on every rank, and relays requests to save or stop.

    Used like this::

        accelerator = Accelerator()
        tracker = MntrainTracker(model, total_steps=1000)
        for step, batch in enumerate(batches, start=1):
            ...
            tracker.log({"loss": loss, "learning_rate": rate}, step=step)
            wish = tracker.wish()
            if wish.save:
                accelerator.save_state("checkpoint")
                tracker.saved()
            if wish.stop:
                break
        tracker.finish()

    Call :meth:`log` on all ranks, once per optimizer step. It keeps ``loss`` or ``train_loss``,
    ``learning_rate`` or ``lr``, ``grad_norm``, ``tokens``, and ``eval_loss`` or ``val_loss``. A
    later call with the same step adds to that step. Tensors are read one step late, so that a GPU
    does not wait. Given the model, it counts tokens and FLOPs in the forward passes. Outside of an
    mntrain job it does nothing.

    ``Accelerator(log_with=tracker)`` works, too, but ``accelerator.log`` reaches only the main
    process: the other ranks then show nothing.

    Args:
        model: before or after ``accelerator.prepare``.
        saves: whether the loop saves when :meth:`wish` asks for it.
    """

    name = "mntrain"
    requires_logging_directory = False
    main_process_only = False

    def __init__(
        self,
        model: nn.Module | None = None,
        *,
        total_steps: int | None = None,
        saves: bool = True,
    ) -> None:
        super().__init__()
        self._loop = LoopRecorder()
        self._model = model
        self._total_steps = total_steps
        self._saves = saves
        self._step = 0
        self._is_over = False
        self._hook: RemovableHandle | None = None
        if model is not None and self._loop.is_wanted:
            self._hook = model.register_forward_pre_hook(self._before_forward, with_kwargs=True)

    @property
    def tracker(self) -> Recorder | None:
        """The recorder; ``None`` outside of a job."""
        return self._loop.recorder

    def start(self) -> None:
        if self._loop.recorder is not None or self._is_over or not self._loop.is_wanted:
            return
        state = AcceleratorState()
        self._loop.begin(
            self._model,
            state.device,
            precision=state.mixed_precision,
            saves=self._saves,
            total_steps=self._total_steps,
        )

    def store_init_configuration(self, values: Mapping[str, Any]) -> None:
        steps = next((values[name] for name in _TOTALS if values.get(name)), None)
        if steps is not None:
            self._loop.facts(total_steps=int(steps))

    def log(self, values: Mapping[str, Any], step: int | None = None, **others: Any) -> None:
        self.start()
        known = {_FIELDS[name]: value for name, value in values.items() if name in _FIELDS}
        evaluation = known.pop("evaluation_loss", None)
        fields = {
            name: int(value) if name == "tokens" else number_of(value)
            for name, value in known.items()
        }
        if step is not None and step == self._loop.held_step:
            self._loop.add(**fields)
        elif fields:
            self._step = self._step + 1 if step is None else step
            self._loop.step(self._step, **fields)
        if evaluation is not None:
            self._loop.evaluated(as_float(evaluation))

    def wish(self) -> Wish:
        """Return what was requested of the job. Collective: the same answer on all ranks."""
        self.start()
        return self._loop.ask()

    def saved(self) -> None:
        """Confirm a requested save. Call on all ranks, after each has written its part."""
        self._loop.saved(self._step)

    def finish(self) -> None:
        if self._hook is not None:
            self._hook.remove()
            self._hook = None
        self._loop.end()
        self._is_over = True

    def _before_forward(
        self, model: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]
    ) -> None:
        if model.training:
            self.start()
            self._loop.flush(waits=False)
            self._loop.batch(named or inputs)
