"""Steps: reads a step's results once they have arrived on the host, and traces its actions."""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from time import perf_counter
from typing import Any, NamedTuple

import msgspec
import torch

from jupyter_mntrain.metrics.recent import RECENT_S, WARM_UP_STEPS
from jupyter_mntrain.model.records.metrics import ComparedTransfer, TracedAction
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.telemetry.callbacks.device_number import DeviceNumber
from jupyter_mntrain.telemetry.formulas import throughput
from jupyter_mntrain.train.pipeline.stopwatch import Mark, Metered, Stopwatch, Timed

# Steps: what a step leaves on the device, read once it has arrived on the host.
#
# Reading a tensor waits for everything that was queued on a GPU before, which then idles until the
# next kernels arrive. So a step's numbers are read while the GPU computes the next one.


LEAST_WAIT_S = 1e-4
"""Shortest wait for a batch that is reported."""


class StepMarks(NamedTuple):
    """Moments of a step, in order; ``before`` is the end of the previous one.

    Replicas that sync rarely may sync after the update.
    """

    before: Mark
    begin: Mark
    passed: Mark
    squared: Mark
    agreed: Mark
    updated: Mark
    end: Mark


class QueuedStep(msgspec.Struct, frozen=True):
    """An optimizer step that the device may still be computing.

    Args:
        number: from 1.
        tokens: inputs that are not padding, over all pipelines.
        own_tokens: of them, those of this rank's pipeline.
        flops: of this rank.
        numbers: loss, gradient norm, and the sums of the votes.
        own: this rank's loss and squared gradient norm, before they were summed.
        metered: what this rank computed and exchanged.
        memory: of this rank when the step was queued, as fields of a sample.
        spikes: how many steps were skipped up to this one, likewise.
    """

    number: int
    learning_rate: float
    tokens: int
    own_tokens: int
    flops: float
    numbers: DeviceNumber
    own: tuple[torch.Tensor, torch.Tensor]
    marks: StepMarks
    metered: Metered
    memory: Mapping[str, int | None]
    spikes: Mapping[str, int]

    @property
    def is_skipped(self) -> bool:
        """Whether the step was not applied to the weights."""
        return self.spikes.get("skipped_step") == self.number

    def read(self, stopwatch: Stopwatch) -> tuple[dict[str, Any], list[float]]:
        """Wait for the step; return its sample's fields, and the sums of the votes."""
        seconds, marks = stopwatch.seconds, self.marks
        loss, norm, *votes = self.numbers.read_all()
        stopwatch.wait(marks.end)
        compute_s = self.metered.compute_s(stopwatch)
        coding_s = self.metered.coding_s(stopwatch)
        waited_s = max(0.0, seconds(marks.begin, marks.passed) - compute_s - coding_s)
        waited_s += seconds(marks.squared, marks.agreed) + seconds(marks.updated, marks.end)
        optimizer_s = seconds(marks.passed, marks.squared) + seconds(marks.agreed, marks.updated)
        sample: dict[str, Any] = {
            "step_s": seconds(marks.before, marks.end),
            "learning_rate": self.learning_rate,
            "tokens": self.own_tokens,
            "loss": loss,
            "grad_norm": norm,
            "compute_s": compute_s,
            "wait_s": waited_s,
            "optimizer_s": optimizer_s,
            "flops": self.flops,
            "sent_bytes": self.metered.sent_bytes,
            "received_bytes": self.metered.received_bytes,
            **self.memory,
            **self.spikes,
        }
        if self.metered.coded:
            sample["coding_s"] = coding_s
        if self.metered.compared:
            sample["compared_transfers"] = tuple(
                ComparedTransfer(one.boundary, is_gradient=one.is_gradient, ratio_db=ratio)
                for one in self.metered.compared
                if (ratio := one.ratio_db()) is not None
            )
        if (data_s := seconds(marks.before, marks.begin)) >= LEAST_WAIT_S:
            sample["data_s"] = data_s
        return sample, votes


def recipe_fields(recipe: Recipe) -> dict[str, Any]:
    """Return fields of a rank's start record that describe its recipe."""
    return {
        "tokens_per_step": recipe.tokens_per_step,
        "total_steps": recipe.steps,
        "schedule": recipe.schedule,
        "microbatches": recipe.microbatches,
        "meets_every": recipe.data_parallel.sync_every or None,
    }


class TokenCount:
    """Counts the tokens of all pipelines over wall time, including the time between steps.

    Args:
        clock: seconds from an arbitrary start.
    """

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._last = clock()
        self._all = (0, 0, 0.0)
        """Steps, their tokens, and their seconds."""
        self._logged = self._all
        self._recent: deque[tuple[float, int, float]] = deque()
        """When steps ended, their tokens, and seconds since the step before."""
        self._sums = (0, 0.0)

    def begin(self) -> None:
        """Start the clock; earlier time does not belong to the training."""
        self._last = self._clock()

    def add(self, tokens: int) -> None:
        """Count a step that has just ended."""
        now = self._clock()
        took_s, self._last = now - self._last, now
        steps, made, seconds = self._all
        self._all = steps + 1, made + tokens, seconds + took_s
        if steps == WARM_UP_STEPS:
            self._recent.clear()
            self._sums = (0, 0.0)
        self._recent.append((now, tokens, took_s))
        made, seconds = self._sums[0] + tokens, self._sums[1] + took_s
        while self._recent[0][0] <= now - RECENT_S:
            _, gone, gone_s = self._recent.popleft()
            made, seconds = made - gone, seconds - gone_s
        self._sums = made, seconds

    @property
    def per_s(self) -> float | None:
        """The rate of the whole attempt."""
        return throughput(*self._all[1:])

    @property
    def recent_per_s(self) -> float | None:
        """The rate of the recent steps, or of all before there are any."""
        return throughput(*self._sums)

    def log_line(self, recipe: Recipe, step: QueuedStep, sample: Mapping[str, Any]) -> str | None:
        """Return the job's log line of a step, or ``None`` if it has none.

        Args:
            sample: from :meth:`QueuedStep.read`.
        """
        number, steps, interval = step.number, recipe.steps, recipe.train.log_interval
        if number % interval and number not in {1, steps}:
            return None
        count, tokens, seconds = (
            now - before for now, before in zip(self._all, self._logged, strict=True)
        )
        self._logged = self._all
        rate = throughput(tokens, seconds) or 0.0
        span = "1 step" if count == 1 else f"{count} steps"
        return (
            f"step {number}/{steps} loss {sample['loss']:.4f} "
            f"grad norm {sample['grad_norm']:.3f} lr {step.learning_rate:.2e} "
            f"{rate:,.0f} tok/s over {span}"
        )


def say(line: str) -> None:
    """Print a line to the job's log."""
    # A sample may contain characters that the log's encoding lacks; that must not end training.
    encoding = sys.stdout.encoding or "utf-8"
    print(line.encode(encoding, "backslashreplace").decode(encoding), flush=True)  # noqa: T201 - the job's log is this process's output


# Tracing: which steps a rank records action by action, and what it did in them.
#
# The marks are those by which every step is measured. A recorded step only reads more of them.


EVERY = 1000
"""Every so many steps, a step is recorded action by action; before them 3, 5, 10, 20, 50 and so
on."""
MOST_ACTIONS = 8192
"""Most actions that a rank reports of such a step: a line is read in blocks of 1 MiB."""

FIRST = 3
"""First step with the numbers of microbatches in flight that are kept; see ``STEADY_AFTER``."""


def is_traced(made: int) -> bool:
    """Whether to record a step: 3, 5, 10, 20, 50, …, and later every :data:`EVERY`-th.

    A short run has some, and a long one does not fill its journal. All ranks decide alike.

    Args:
        made: steps of this attempt, this one included.
    """
    if made >= EVERY:
        return made % EVERY == 0
    digits = str(made).rstrip("0")
    return made == FIRST or (made > FIRST and digits in {"1", "2", "5"})


def actions_of(
    step: QueuedStep, stopwatch: Stopwatch, microbatches: int
) -> tuple[TracedAction, ...]:
    """Return what this rank did in a step that the device has passed, in order of start.

    Args:
        microbatches: of one pass over the schedule.
    """
    marks = step.marks

    def at(mark: Mark) -> float:
        return round(stopwatch.seconds(marks.before, mark), 7)

    found = [*_computed(step.metered.timed, stopwatch, microbatches, marks.before)]
    passes: Counter[tuple[str, int, int]] = Counter()
    for one in step.metered.posted:
        key = (one.kind, one.stage, one.microbatch)
        microbatch = passes[key] * microbatches + one.microbatch
        passes[key] += 1
        found.append(
            TracedAction(one.kind, at(one.at), at(one.at), one.stage, microbatch, one.peer)
        )
    for begin, end in ((marks.passed, marks.squared), (marks.agreed, marks.updated)):
        found.append(TracedAction("update", at(begin), at(end)))
    found.sort(key=lambda one: one.begin_s)
    return tuple(found[:MOST_ACTIONS])


def _computed(
    timed: list[Timed], stopwatch: Stopwatch, microbatches: int, origin: Mark
) -> Iterator[TracedAction]:
    """Yield what was computed; each forward pass has its loss."""
    passes: Counter[tuple[str, int, int]] = Counter()
    for index, one in enumerate(timed):
        if one.kind is None:
            continue
        key = (one.kind, one.stage, one.microbatch)
        microbatch = passes[key] * microbatches + one.microbatch
        passes[key] += 1
        after = timed[index + 1] if index + 1 < len(timed) else one
        last = after.end if after.kind is None else one.end
        begin, end = (stopwatch.seconds(origin, mark) for mark in (one.begin, last))
        yield TracedAction(one.kind, round(begin, 7), round(end, 7), one.stage, microbatch)
