"""transformers callback: records the steps of a Trainer."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.utils.hooks import RemovableHandle

from jupyter_mntrain.model.errors import MissingLibraryError
from jupyter_mntrain.telemetry.callbacks.loops import LoopRecorder

try:
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
except ImportError as error:
    raise MissingLibraryError(
        "MntrainCallback is a callback of transformers' Trainer, which is not installed here",
        fix="pip install 'transformers[torch]'",
    ) from error


class MntrainCallback(TrainerCallback):
    """Records a Trainer's steps on every rank; saves and stops on request.

    Used like this::

        Trainer(model, arguments, train_dataset=data, callbacks=[MntrainCallback()]).train()

    Loss and gradient norm are recorded at the steps at which the Trainer logs them
    (``logging_steps``). Outside of an mntrain job it does nothing.
    """

    def __init__(self) -> None:
        self._loop = LoopRecorder()
        self._learning_rate: float | None = None
        self._hook: RemovableHandle | None = None

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        *,
        model: nn.Module,
        **others: Any,
    ) -> None:
        precision = "bf16" if args.bf16 else "fp16" if args.fp16 else ""
        self._loop.begin(model, args.device, precision=precision, total_steps=state.max_steps)
        if self._loop.recorder is not None:
            self._hook = model.register_forward_pre_hook(self._hook_of(args), with_kwargs=True)

    def on_optimizer_step(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        *,
        optimizer: Any = None,
        **others: Any,
    ) -> None:
        # Read before the scheduler advances.
        self._learning_rate = None if optimizer is None else float(optimizer.param_groups[0]["lr"])

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> TrainerControl:
        self._loop.step(state.global_step, learning_rate=self._learning_rate)
        wish = self._loop.ask()
        control.should_save = control.should_save or wish.save
        control.should_training_stop = control.should_training_stop or wish.stop
        if not control.should_log:
            self._flush_unless_evaluated(state, control)
        return control

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        *,
        logs: dict[str, Any] | None = None,
        **others: Any,
    ) -> None:
        if logs and "loss" in logs and self._loop.held_step == state.global_step:
            self._loop.add(loss=float(logs["loss"]), grad_norm=_number(logs.get("grad_norm")))
            self._flush_unless_evaluated(state, control)

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        *,
        metrics: dict[str, float] | None = None,
        **others: Any,
    ) -> None:
        losses = [value for name, value in (metrics or {}).items() if name.endswith("_loss")]
        self._loop.evaluated(float(losses[0]) if losses else None)

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> None:
        if not (control.should_log or control.should_evaluate):
            self._loop.flush()

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> None:
        self._loop.saved(state.global_step)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> None:
        if self._hook is not None:
            self._hook.remove()
            self._hook = None
        self._loop.end()

    def _flush_unless_evaluated(self, state: TrainerState, control: TrainerControl) -> None:
        """Flush unless the step is an epoch's last, which may still be evaluated."""
        if not control.should_evaluate and not float(state.epoch or 0.0).is_integer():
            self._loop.flush()

    def _hook_of(self, args: TrainingArguments) -> Any:
        if not args.torch_compile:
            return self._before_forward
        from torch import compiler

        # Otherwise each step would be recompiled.
        return compiler.disable(self._before_forward)  # type: ignore[no-untyped-call]

    def _before_forward(
        self, model: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]
    ) -> None:
        if model.training:
            self._loop.batch(named or inputs)


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
