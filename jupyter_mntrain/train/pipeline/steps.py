"""Steps: what a step leaves on the device, read once it has arrived on the host.

Reading a tensor waits for everything that was queued on a GPU before, which then idles until the
next kernels arrive. So a step's numbers are read while the GPU computes the next one.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.telemetry.callbacks.device_number import DeviceNumber
from jupyter_mntrain.train.pipeline.stopwatch import Mark, Metered, Stopwatch


@dataclass(frozen=True)
class StepMarks:
    """Moments of a step, in order; ``before`` is the end of the one before. After the update,
    replicas that meet rarely may have met.
    """

    before: Mark
    begin: Mark
    passed: Mark
    squared: Mark
    agreed: Mark
    updated: Mark
    end: Mark


@dataclass(frozen=True)
class QueuedStep:
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
        """Whether it was not applied to the weights."""
        return self.spikes.get("skipped_step") == self.number

    def read(self, stopwatch: Stopwatch) -> tuple[dict[str, Any], float, list[float]]:
        """Wait for the step; return its sample's fields, its seconds, and the sums of the votes."""
        seconds, marks = stopwatch.seconds, self.marks
        loss, norm, *votes = self.numbers.read_all()
        stopwatch.wait(marks.end)
        compute_s = self.metered.compute_s(stopwatch)
        waited_s = max(0.0, seconds(marks.begin, marks.passed) - compute_s)
        waited_s += seconds(marks.squared, marks.agreed) + seconds(marks.updated, marks.end)
        optimizer_s = seconds(marks.passed, marks.squared) + seconds(marks.agreed, marks.updated)
        sample = {
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
        return sample, seconds(marks.before, marks.end), votes


def recipe_fields(recipe: Recipe) -> dict[str, Any]:
    """What a rank's record says of its recipe, as fields of its start."""
    return {
        "tokens_per_step": recipe.tokens_per_step,
        "total_steps": recipe.steps,
        "schedule": recipe.schedule,
        "microbatches": recipe.microbatches,
        "meets_every": recipe.data_parallel.sync_every or None,
    }


def log_line(
    recipe: Recipe, step: QueuedStep, sample: Mapping[str, Any], times: Sequence[float]
) -> str | None:
    """Return the job's log line of a step, or ``None`` if it has none.

    Args:
        sample: from :meth:`QueuedStep.read`.
        times: seconds of all steps of this attempt.
    """
    number, steps, interval = step.number, recipe.steps, recipe.train.log_interval
    if number % interval and number not in {1, steps}:
        return None
    recent = times[-interval:]
    rate = step.tokens * len(recent) / sum(recent)
    span = "1 step" if len(recent) == 1 else f"{len(recent)} steps"
    return (
        f"step {number}/{steps} loss {sample['loss']:.4f} grad norm {sample['grad_norm']:.3f} "
        f"lr {step.learning_rate:.2e} {rate:,.0f} tok/s over {span}"
    )


def say(line: str) -> None:
    """Print a line to the job's log."""
    # A sample may contain characters that the log's encoding lacks; that must not end training.
    encoding = sys.stdout.encoding or "utf-8"
    print(line.encode(encoding, "backslashreplace").decode(encoding), flush=True)  # noqa: T201 - the job's log is this process's output
