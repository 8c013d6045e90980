"""Loop recorder: shared by all callbacks; records one line per optimizer step."""

from __future__ import annotations

import os
import time
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import torch
from torch import nn

from jupyter_mntrain.model.environment import CHECKPOINT_VARIABLE, METRICS_VARIABLE
from jupyter_mntrain.telemetry.callbacks.batches import (
    BatchMeter,
    FlopsPerToken,
    model_flops,
    parameter_count,
)
from jupyter_mntrain.telemetry.callbacks.device_number import DeviceNumber
from jupyter_mntrain.telemetry.callbacks.requests import SharedWishes, Wish
from jupyter_mntrain.telemetry.controls import ControlReader
from jupyter_mntrain.telemetry.device.gemm import device_name, device_peak
from jupyter_mntrain.telemetry.memory import MemoryGauge
from jupyter_mntrain.telemetry.recorder import Recorder

DTYPES = {"bf16": torch.bfloat16, "16": torch.float16, "fp16": torch.float16}
"""Dtype of matrix products, by the libraries' names of mixed precision, such as ``bf16-mixed``."""


class LoopRecorder:
    """Records another library's training loop. Outside of an mntrain job it does nothing.

    A step is held back until its loss or evaluation is known, which may come later; :meth:`flush`
    or the next step writes it.
    """

    _wishes: SharedWishes
    _facts: dict[str, Any]
    _memory: MemoryGauge
    _flops_per_token: FlopsPerToken | None
    _meter: BatchMeter
    _held: dict[str, Any] | None = None
    _step = 0
    """Number of the last step."""
    _is_started = False
    _last = 0.0
    """When the last step, evaluation or save ended."""
    _ended = 0.0
    """When the held step ended."""
    _waited_s = 0.0
    """Seconds of waiting for batches in the current step."""

    def __init__(self) -> None:
        self.recorder: Recorder | None = None
        """The recorder between :meth:`begin` and :meth:`end`; otherwise ``None``."""

    @property
    def is_wanted(self) -> bool:
        """Whether this process is a rank of an mntrain job."""
        return bool(os.environ.get(METRICS_VARIABLE))

    @property
    def checkpoint_directory(self) -> Path:
        """The job's checkpoint directory on this node."""
        return Path(os.environ.get(CHECKPOINT_VARIABLE, "."))

    def begin(
        self,
        model: nn.Module | None,
        device: torch.device,
        *,
        precision: str = "",
        saves: bool = True,
        total_steps: int | None = None,
    ) -> None:
        """Start recording; call before the first batch, on all ranks of a node at the same time.

        Each rank measures its device.

        Args:
            precision: of matrix products if it differs from the weights': ``bf16``, ``16-mixed``.
            saves: whether :meth:`ask` is called after every step.
        """
        if not self.is_wanted:
            return
        self.end()
        self.recorder = Recorder()
        self._wishes = SharedWishes(ControlReader())
        self._facts = {"device": device_name(device), "saves": saves, "total_steps": total_steps}
        self._memory = MemoryGauge(device)
        self._flops_per_token = None if model is None else model_flops(model)
        self._meter = BatchMeter(self._flops_per_token)
        self._held, self._step, self._is_started = None, 0, False
        if model is not None:
            self._facts["parameters"] = parameter_count(model)
        if model is not None and self._flops_per_token is not None:
            peak = device_peak(device, _dtype(model, precision), self.recorder.progress)
            self._facts["peak_flops_per_s"] = peak.flops_per_s if peak else None
            self._facts["peak_source"] = peak.source if peak else None
        self._last = time.perf_counter()

    def facts(self, **facts: Any) -> None:
        """Add fields to the first line; no effect after the first batch."""
        if self.recorder is not None:
            self._facts |= facts

    def batch(self, batch: object) -> None:
        """Count a training batch; call before computing it."""
        if self.recorder is None:
            return
        self._waited_s = self._waited_s or time.perf_counter() - self._last
        length = self._meter.add(batch)
        if length is not None:
            self._facts.setdefault("counts_padding", True)
        if length is not None and self._flops_per_token is not None:
            self._facts.setdefault("flops_per_token", self._flops_per_token(length))
        if not self._is_started:
            self._last = time.perf_counter()  # exclude loading from the first step
            self._waited_s = 0.0
        self._start(self.recorder)

    def step(self, step: int, **fields: Any) -> None:
        """Record optimizer step number ``step``, from 1; call after it.

        A :class:`DeviceNumber` among the fields is read when the step is written.
        """
        if self.recorder is None:
            return
        self.flush()
        self._start(self.recorder)
        now = time.perf_counter()
        tokens, flops = self._meter.take()
        self._held = {
            "step": step,
            "step_s": now - self._last,
            "data_s": self._waited_s,
            "tokens": tokens,
            "flops": flops,
            **self._memory.fields(),
            **fields,
        }
        self._step, self._last, self._ended, self._waited_s = step, now, now, 0.0

    def add(self, **fields: Any) -> None:
        """Add fields to the held step, if any."""
        if self._held is not None:
            self._held |= fields

    def evaluated(self, loss: float | None) -> None:
        """Record the held-out loss after the finished steps, if known, and the time that it took.

        Ignored before the first step.
        """
        took_s = self._leave_out()
        if self.recorder is None or not self._step:
            return
        self.flush()
        if loss is None:
            self.recorder.paused("evaluation", took_s)
        else:
            self.recorder.evaluated(self._step, loss, took_s=took_s)

    @property
    def held_step(self) -> int | None:
        """The number of the held step, or ``None``."""
        return None if self._held is None else int(self._held["step"])

    def flush(self, *, waits: bool = True) -> None:
        """Write the held step.

        Args:
            waits: for its numbers; otherwise it stays held until all are known.
        """
        if self.recorder is None or self._held is None:
            return
        pending = {k: v for k, v in self._held.items() if isinstance(v, DeviceNumber)}
        if waits or all(number.is_known for number in pending.values()):
            held, self._held = self._held, None
            told = held | {name: one.read() for name, one in pending.items()}
            self.recorder.step(**told, age_s=time.perf_counter() - self._ended)

    def _leave_out(self) -> float:
        """Exclude the time since the last step from the next one; return its seconds."""
        now = time.perf_counter()
        took_s, self._last = now - self._last, now
        return took_s

    def ask(self) -> Wish:
        """Return what was requested of the job. Collective: the same answer on all ranks."""
        return self._wishes.ask() if self.recorder is not None else Wish()

    def saved(self, step: int) -> None:
        """Record a checkpoint of ``step`` steps. Call on all ranks, after each has written it."""
        if self.recorder is not None:
            self._wishes.saved()
            took_s = self._leave_out()
            self.flush()
            self.recorder.saved(step, took_s=took_s)

    def end(self, ok: bool = True, message: str = "") -> None:
        """Stop recording, after the last step. May be called again."""
        if self.recorder is not None:
            # After an error, the device may no longer give what it has computed.
            with nullcontext() if ok else suppress(RuntimeError):
                self.flush()
            self.recorder.close(ok, message)
            self.recorder = None

    def _start(self, recorder: Recorder) -> None:
        if not self._is_started:
            self._is_started = True
            recorder.start(**self._facts)


def _dtype(model: nn.Module, precision: str) -> torch.dtype:
    named = DTYPES.get(precision.partition("-")[0])
    return named or next(model.parameters()).dtype
