"""Loop recorder: what all callbacks share; one line per optimizer step."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from jupyter_mntrain.model.environment import CHECKPOINT_VARIABLE, METRICS_VARIABLE
from jupyter_mntrain.telemetry.callbacks.batches import BatchMeter, model_flops, parameter_count
from jupyter_mntrain.telemetry.callbacks.requests import SharedWishes, Wish
from jupyter_mntrain.telemetry.controls import ControlReader
from jupyter_mntrain.telemetry.gemm import device_peak
from jupyter_mntrain.telemetry.memory import MemoryGauge
from jupyter_mntrain.telemetry.recorder import Recorder

DTYPES = {"bf16": torch.bfloat16, "16": torch.float16, "fp16": torch.float16}
"""What matrix products run in, by how the libraries name mixed precision: ``bf16-mixed``."""


class LoopRecorder:
    """Records another library's training loop. Outside of an mntrain job it does nothing.

    A step is held until what else is said about it, its loss or an evaluation, has come:
    :meth:`flush` writes it, as does the next one.

    Args:
        environment: where the job's variables are read.
        stopwatch: seconds from an arbitrary start.
    """

    def __init__(
        self,
        *,
        environment: Mapping[str, str] = os.environ,
        stopwatch: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._environment = environment
        self._stopwatch = stopwatch
        self._running: _Running | None = None

    @property
    def recorder(self) -> Recorder | None:
        """What is written to between :meth:`begin` and :meth:`end`."""
        return None if self._running is None else self._running.recorder

    @property
    def is_wanted(self) -> bool:
        """Whether this is a rank of an mntrain job."""
        return bool(self._environment.get(METRICS_VARIABLE))

    @property
    def is_on(self) -> bool:
        """Whether anything is recorded."""
        return self._running is not None

    @property
    def checkpoint_directory(self) -> Path:
        """The job's own place for checkpoints on this node."""
        return Path(self._environment.get(CHECKPOINT_VARIABLE, "."))

    def begin(
        self,
        model: nn.Module | None,
        device: torch.device,
        *,
        precision: str = "",
        saves: bool = True,
        total_steps: int | None = None,
    ) -> None:
        """Before the first batch; all ranks of a node at once, as each measures its device.

        Args:
            precision: of matrix products where it is not the weights': ``bf16``, ``16-mixed``.
            saves: whether :meth:`ask` is called after every step.
        """
        if not self.is_wanted:
            return
        self.end()
        self._running = _Running(self._environment, self._stopwatch, model, device, precision)
        self._running.facts |= {"saves": saves, "total_steps": total_steps}

    def facts(self, **facts: Any) -> None:
        """More fields of the first line; too late after the first batch."""
        if self._running is not None:
            self._running.facts |= facts

    def batch(self, batch: object) -> None:
        """Before this rank computes ``batch`` in training."""
        if self._running is not None:
            self._running.batch(batch)

    def step(self, step: int, **fields: Any) -> None:
        """After the optimizer's step number ``step``, from 1."""
        if self._running is not None:
            self._running.flush()
            self._running.hold(step, fields)

    def add(self, **fields: Any) -> None:
        """More about the step that is held; nothing if none is."""
        if self._running is not None and self._running.held is not None:
            self._running.held |= fields

    def evaluated(self, loss: float) -> None:
        """On data that is not trained on, after the steps that are done; not before the first."""
        running = self._running
        if running is not None and running.step:
            running.flush()
            running.recorder.evaluated(running.step, loss)
        self.leave_out()

    @property
    def held_step(self) -> int | None:
        """Its number, if there is one."""
        held = None if self._running is None else self._running.held
        return None if held is None else int(held["step"])

    def flush(self) -> None:
        """Nothing more is to come about the step that is held."""
        if self._running is not None:
            self._running.flush()

    def leave_out(self) -> None:
        """What was done since the last step, such as saving, is no part of the next one."""
        if self._running is not None:
            self._running.last = self._stopwatch()

    def ask(self) -> Wish:
        """What people want after this step: the same on all ranks, which all have to ask."""
        return Wish() if self._running is None else self._running.wishes.ask()

    def saved(self, step: int) -> None:
        """A checkpoint of ``step`` steps is written, on each of the ranks."""
        if self._running is not None:
            self._running.wishes.saved()
            self._running.recorder.saved(step)
            self.leave_out()

    def end(self, ok: bool = True, message: str = "") -> None:
        """After the last step. Called again, does nothing."""
        if self._running is not None:
            self._running.flush()
            self._running.recorder.close(ok, message)
            self._running = None


class _Running:
    """One run of a loop, between begin and end."""

    def __init__(
        self,
        environment: Mapping[str, str],
        stopwatch: Callable[[], float],
        model: nn.Module | None,
        device: torch.device,
        precision: str,
    ) -> None:
        self.recorder = Recorder(environment=environment)
        self.wishes = SharedWishes(ControlReader(environment=environment))
        self.held: dict[str, Any] | None = None
        self.step = 0
        """Number of the last one."""
        self.facts: dict[str, Any] = {"device": _name(device)}
        self._stopwatch = stopwatch
        self._flops_per_token = None if model is None else model_flops(model)
        self._meter = BatchMeter(self._flops_per_token)
        self._memory = MemoryGauge(device)
        self._is_started = False
        if model is not None:
            self.facts["parameters"] = parameter_count(model)
        if model is not None and self._flops_per_token is not None:
            peak = device_peak(device, _dtype(model, precision), self.recorder.progress)
            self.facts["peak_flops_per_s"] = peak.flops_per_s if peak else None
            self.facts["peak_source"] = peak.source if peak else None
        self.last = stopwatch()

    def batch(self, batch: object) -> None:
        length = self._meter.add(batch)
        if length is not None and self._flops_per_token is not None:
            self.facts.setdefault("flops_per_token", self._flops_per_token(length))
        if not self._is_started:
            self.last = self._stopwatch()  # loading is no part of the first step
        self._start()

    def hold(self, step: int, fields: dict[str, Any]) -> None:
        self._start()
        self.step = step
        now = self._stopwatch()
        tokens, flops = self._meter.take()
        self.held = {
            "step": step,
            "step_s": now - self.last,
            "tokens": tokens,
            "flops": flops,
            "memory_bytes": self._memory.bytes(),
            **fields,
        }
        self.last = now

    def flush(self) -> None:
        if self.held is not None:
            self.recorder.step(**self.held)
            self.held = None

    def _start(self) -> None:
        if not self._is_started:
            self._is_started = True
            self.recorder.start(**self.facts)


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def _dtype(model: nn.Module, precision: str) -> torch.dtype:
    named = DTYPES.get(precision.partition("-")[0])
    return named or next(model.parameters()).dtype
