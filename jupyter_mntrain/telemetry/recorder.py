"""Recorder: writes one line per step from inside a rank to a local file.

Never waits for a network or a disk.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from pathlib import Path
from typing import Any, Literal, Self, SupportsFloat, TypeVar

from jupyter_mntrain.model.api import rank_file
from jupyter_mntrain.model.environment import METRICS_VARIABLE, NODE_VARIABLE
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.files import PRIVATE, private_directory
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.lifecycle.clock import Clock, clock_of
from jupyter_mntrain.model.records.job import RunningChange
from jupyter_mntrain.model.records.metrics import (
    RankEnd,
    RankEvaluation,
    RankGroup,
    RankProgress,
    RankSample,
    RankSaved,
    RankSettings,
    RankStart,
    RankStep,
    RankText,
    RankTrace,
    TracedAction,
    encoder,
)
from jupyter_mntrain.model.text.foreign import encodable
from jupyter_mntrain.telemetry.group import group_size
from jupyter_mntrain.telemetry.progress import Pace, drawn, tracked
from jupyter_mntrain.telemetry.startup.mntrain_rank_hooks import answer_with_stacks

T = TypeVar("T")

MESSAGE_LIMIT = 2000
"""Maximum number of characters of an error's message."""

TEXT_LIMIT = 100_000
"""Maximum number of characters of a prompt or of a text that a model wrote: a line is read in
blocks of 1 MiB."""

GROUP_STEPS = 3
"""Number of steps after which a rank tells how many ranks its process group has: some scripts
create it late, and an operation of the first step may do so."""

MOST_OWED_BYTES = 1 << 16
"""Most bytes of lines that wait for space on a full disk."""

Pause = Literal["evaluation", "sampling", "saving"]
"""Work between two steps."""

WHAT_LIMIT = 200
"""Maximum number of characters of a progress report's name, which is shown on one line."""


class Recorder:
    """Writes this rank's samples to ``$MNTRAIN_METRICS_DIR``; without it, does nothing.

    Three lines in any training script::

        with Recorder() as recorder:
            for batch in batches:
                recorder.step(tokens=batch.numel(), loss=train(batch))

    Rank, host, step number and step time come from torchrun's environment and the clock. Each line
    is one ``write`` to a file opened for appending, so a killed rank leaves only whole lines. A
    full disk costs steps of the record, never the training: what cannot be written is tried again
    with the next step, except for steps and progress.

    Args:
        directory: instead of ``$MNTRAIN_METRICS_DIR``.
        clock: Unix time in seconds; ``None`` = the job's clock.
        stopwatch: seconds from an arbitrary start, for durations.
        environment: to read torchrun's variables from.
        group: number of ranks in this rank's process group, if known.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        clock: Clock | None = None,
        stopwatch: Callable[[], float] = time.perf_counter,
        environment: Mapping[str, str] = os.environ,
        group: Callable[[], int | None] = group_size,
    ) -> None:
        if directory is None and environment.get(METRICS_VARIABLE):
            directory = Path(environment[METRICS_VARIABLE])
        self._clock = clock or clock_of(environment)
        self._stopwatch = stopwatch
        self._rank = Rank(int(environment.get("RANK", "0")))
        self._local_rank = int(environment.get("LOCAL_RANK", "0"))
        self._world_size = int(environment.get("WORLD_SIZE", "1"))
        self._host = environment.get(NODE_VARIABLE) or socket.gethostname()
        self._pid = os.getpid()
        self._step = 0
        self._group = group
        self._steps_to_group = GROUP_STEPS if self._world_size > 1 else 0
        self._pauses: dict[str, float] = {}
        """Seconds since the last step, by field of the next step's line."""
        self._group_size: int | None = None
        self._last = stopwatch()
        self._is_started = False
        self._flops_per_token: float | None = None
        self._pace = Pace(stopwatch)
        self._path = None if directory is None else directory / rank_file(self._rank)
        self._file: int | None = None
        self._owed, self._is_lost = b"", False
        if self._path is not None:
            self._write_owed(b"", may_be_lost=True)
        if directory is not None:
            answer_with_stacks(str(directory), str(self._rank))

    def start(self, sample: RankStart | None = None, /, **fields: Any) -> None:
        """Write the first line, about this rank; otherwise the first :meth:`step` does.

        Takes a whole :class:`RankStart` or its fields by name; identity and time are filled in.
        """
        if self._is_started:
            return
        self._is_started = True
        self._last = self._stopwatch()
        if self._path is None:
            return
        if sample is None:
            identity: dict[str, Any] = {
                "time_s": self._clock(),
                "rank": self._rank,
                "local_rank": self._local_rank,
                "world_size": self._world_size,
                "pid": self._pid,
                "host": self._host,
            }
            sample = RankStart(**(identity | fields))
        self._flops_per_token = sample.flops_per_token
        self._write(sample)

    def step(
        self,
        sample: RankStep | None = None,
        /,
        *,
        tokens: SupportsFloat | None = None,
        loss: SupportsFloat | None = None,
        step: int | None = None,
        step_s: float | None = None,
        age_s: float = 0.0,
        **fields: Any,
    ) -> None:
        """Record one optimizer step.

        Takes a whole :class:`RankStep`, or its fields by name. Steps count from 1; ``step_s`` is
        the time since the last call if not given, without evaluations and saves that were recorded
        since. ``loss`` may be anything ``float`` takes, ``tokens`` anything ``int`` takes; a number
        of tokens that is no count (NaN, negative) is recorded as unknown. ``flops`` is ``tokens``
        times the ``flops_per_token`` of :meth:`start` if not given.

        Args:
            age_s: seconds since the step's end.
        """
        if not self._is_started:
            # The first step has been running since the recorder was created.
            begun = self._last
            self.start()
            self._last = begun
        now = self._stopwatch()
        elapsed, self._last = now - self._last, now
        self._step = sample.step if sample else (self._step + 1 if step is None else step)
        if self._path is None:
            return
        if sample is None:
            if step is None and self._step == 1:
                fields.setdefault("is_counted", True)
            counted = _as_count(tokens)
            if counted is not None and self._flops_per_token is not None:
                fields.setdefault("flops", counted * self._flops_per_token)
            if step_s is None or not 0 <= step_s < math.inf:
                step_s = elapsed
            if self._pauses:
                fields |= self._pauses
                self._pauses = {}
            sample = RankStep(
                time_s=self._clock() - age_s,
                rank=self._rank,
                step=self._step,
                step_s=step_s,
                tokens=counted,
                loss=None if loss is None else as_float(loss),
                **fields,
            )
        self._write(sample, may_be_lost=True)
        if self._steps_to_group:
            self._look_at_group()

    def traced(
        self, step: int, step_s: float, actions: Sequence[TracedAction], *, age_s: float = 0.0
    ) -> None:
        """Record what this rank did in a step, action by action.

        Args:
            age_s: seconds since the step's end.
        """
        now = self._clock()
        told = RankTrace(
            time_s=now,
            rank=self._rank,
            step=step,
            begin_s=now - age_s - step_s,
            step_s=step_s,
            actions=tuple(actions),
        )
        self._write(told, may_be_lost=True)

    def progress(
        self,
        what: str,
        done: SupportsFloat,
        total: SupportsFloat | None = None,
        unit: str = "",
    ) -> None:
        """Report the progress of something other than a step: loading, reading, saving.

        Call it as often as you like: reports too soon after the last one of the same name are
        dropped. ``done`` equal to ``total`` ends it.

        Args:
            what: a name to show: "loading the model".
            total: if known.
            unit: of ``done`` and ``total``: "B" for bytes, "s" for seconds, or like "files".
        """
        if self._step == 0:
            self._last = self._stopwatch()  # exclude loading from the first step
        if self._path is None:
            return
        sample = RankProgress(
            time_s=self._clock(),
            rank=self._rank,
            what=encodable(what[:WHAT_LIMIT]),
            done=float(done),
            total=_finite(total),
            unit=encodable(unit),
        )
        if math.isfinite(sample.done) and self._pace.allows(sample.what, is_over=sample.is_over):
            self._write(sample, may_be_lost=True)

    def paused(self, what: Pause, took_s: float | None = None) -> None:
        """Count time since the last step as something other than the next one.

        Args:
            took_s: seconds; by default all since the last step or pause.
        """
        now = self._stopwatch()
        took_s = now - self._last if took_s is None else took_s
        self._last = now
        if self._step:  # time before the first step does not belong to the training
            self._pauses[f"{what}_s"] = self._pauses.get(f"{what}_s", 0.0) + max(0.0, took_s)

    def evaluated(self, step: int, loss: SupportsFloat, *, took_s: float | None = None) -> None:
        """Record the loss on held-out text after ``step`` steps, when it has been measured.

        Args:
            took_s: seconds; by default all since the last step or pause.
        """
        self.paused("evaluation", took_s)
        self._write(
            RankEvaluation(time_s=self._clock(), rank=self._rank, step=step, loss=as_float(loss))
        )

    def wrote(self, step: int, prompt: str, text: str) -> None:
        """Record the model's continuation of ``prompt`` after ``step`` steps."""
        self.paused("sampling")
        cut = {"prompt": encodable(prompt[:TEXT_LIMIT]), "text": encodable(text[:TEXT_LIMIT])}
        self._write(RankText(time_s=self._clock(), rank=self._rank, step=step, **cut))

    def saved(
        self,
        step: int,
        *,
        is_scheduled: bool = False,
        took_s: float | None = None,
        problem: Problem | None = None,
    ) -> None:
        """Record that a checkpoint of ``step`` steps is complete on all ranks.

        Args:
            is_scheduled: it was due, and nobody had asked for it: who has asked waits on.
            problem: why it could not be saved, though training goes on.
            took_s: seconds that training waited for it; by default all since the last step or
                pause, if that was the step that is saved, and none if it was saved meanwhile.
        """
        if took_s is None and step != self._step:
            took_s = 0.0
        if took_s != 0.0:
            self.paused("saving", took_s)
        told = RankSaved(
            time_s=self._clock(),
            rank=self._rank,
            step=step,
            is_scheduled=is_scheduled,
            problem=problem,
        )
        self._write(told)

    def changed(self, change: RunningChange) -> None:
        """Record that all ranks took, or refused, other settings."""
        self._write(RankSettings(time_s=self._clock(), rank=self._rank, change=change))

    def track(
        self, items: Iterable[T], what: str, total: float | None = None, unit: str = ""
    ) -> Iterable[T]:
        """Iterate over items, reporting :meth:`progress`; on a terminal also with a bar.

        Args:
            what: a name to show: "reading shards".
            total: number of items; by default ``len(items)`` if it has one.
            unit: what the items are: "shards".
        """
        if total is None and isinstance(items, Sized):
            total = len(items)
        items = drawn(items, what, total, unit, self._local_rank)
        return items if self._path is None else tracked(items, self.progress, what, total, unit)

    def close(self, ok: bool = True, message: str = "") -> None:
        """Write the last line and close the file. May be called again."""
        if self._path is None:
            return
        self._tell_group()
        told = encodable(message[:MESSAGE_LIMIT])
        self._write(RankEnd(time_s=self._clock(), rank=self._rank, ok=ok, message=told))
        self._close_file()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is None or (isinstance(error, SystemExit) and error.code in {None, 0}):
            self.close()
        else:
            self.close(False, f"{type(error).__name__}: {error}")  # noqa: FBT003

    def _look_at_group(self) -> None:
        """Note the process group during the first steps, as it may be gone when the loop ends."""
        self._steps_to_group -= 1
        size = self._group()
        if size is not None:
            self._group_size = max(size, self._group_size or 0)
        if not self._steps_to_group:
            self._tell_group()

    def _tell_group(self) -> None:
        size, self._group_size, self._steps_to_group = self._group_size, None, 0
        if size is not None:
            self._write(RankGroup(time_s=self._clock(), rank=self._rank, size=size))

    def _write(self, sample: RankSample, *, may_be_lost: bool = False) -> None:
        if self._path is None or os.getpid() != self._pid:  # a forked data loader is not the rank
            return
        self._write_owed(encoder.encode(sample) + b"\n", may_be_lost=may_be_lost)

    def _write_owed(self, line: bytes, *, may_be_lost: bool) -> None:
        """Write a line, after those that could not be written before."""
        assert self._path is not None  # noqa: S101 - or nothing is recorded
        left = due = self._owed + line
        try:
            if self._file is None:
                self._file = _open(self._path)
            while left:
                left = left[os.write(self._file, left) :]
        except OSError as error:
            if len(left) < len(due):  # torn
                self._owed = left
            elif not may_be_lost and len(self._owed) < MOST_OWED_BYTES:
                self._owed = due
            if not self._is_lost:
                self._is_lost = True
                self._tell(f"cannot be written: {error}")
        else:
            self._owed = b""
            if self._is_lost:
                self._is_lost = False
                self._tell("are written again")

    def _tell(self, what: str) -> None:
        """Print a message when steps start to be lost, and another when they no longer are."""
        print(f"mntrain: metrics of rank {self._rank} {what}", file=sys.stderr)  # noqa: T201

    def _close_file(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.close(self._file)
            self._file = None
        self._path = None


def _finite(value: SupportsFloat | None) -> float | None:
    number = math.nan if value is None else float(value)
    return number if math.isfinite(number) else None


def _as_count(value: SupportsFloat | None) -> int | None:
    if type(value) is int and value >= 0:  # most are: a step must not cost more for the others
        return value
    number = math.nan if value is None else as_float(value)
    return int(number) if 0 <= number < math.inf else None


def as_float(value: SupportsFloat) -> float:
    """Convert to float. A tensor is detached first, since torch would warn otherwise."""
    if type(value) is float:
        return value
    detach = getattr(value, "detach", None)
    return float(detach() if detach is not None else value)


def _open(path: Path) -> int:
    private_directory(path.parent)
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, PRIVATE)
    size = os.fstat(file).st_size
    if size and os.pread(file, 1, size - 1) != b"\n":
        os.write(file, b"\n")  # an earlier process was killed in the middle of a line
    return file
