"""Job rows: one step of all ranks together."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from statistics import fmean

from jupyter_mntrain.metrics.columns import Table
from jupyter_mntrain.metrics.history import JobHistory, RankSeries
from jupyter_mntrain.metrics.recent import WARM_UP_STEPS
from jupyter_mntrain.telemetry import formulas

COLUMNS = ("time_s", "step", "step_s", "tokens", "tokens_per_s", "flops_per_s", "bubble", "loss")

OF_ALL_RANKS = ("tokens", "tokens_per_s", "flops_per_s", "bubble")
"""Not known while a rank writes nothing: it may be a replica with tokens of its own."""

SILENT_AFTER_STEPS = 3
"""A rank that has written nothing when another has done these writes nothing at all."""


class JobRows:
    """The rows of the job, and what is told of its losses."""

    def __init__(self) -> None:
        self._begin(0)

    def _begin(self, writers: int) -> None:
        self._writers = writers
        """Ranks that have written something. With another one all rows are taken again."""
        self.table = Table(COLUMNS, WARM_UP_STEPS)
        self.first_loss: float | None = None
        self.last_loss: float | None = None
        self.not_finite = 0
        self.first_not_finite_step: int | None = None
        self._taken = 0
        self._tokens: float | None = None

    def extend(self, history: JobHistory, seq: int) -> int:
        """Take the steps that every rank has finished; returns the number of the last row."""
        most = max((len(one.steps) for one in history.ranks.values()), default=0)
        writing = history.writing
        if len(writing) != self._writers:
            self._begin(len(writing))
        if not history.is_whole and most < SILENT_AFTER_STEPS:
            return seq
        ready = min((len(one.steps) for one in writing), default=0)
        for index in range(self._taken, ready):
            seq += 1
            row = _row(writing, index)
            row["tokens"] = self._count(row["tokens"], row["step"])
            if not history.is_whole:
                row |= dict.fromkeys(OF_ALL_RANKS)
            self.table.append(seq, row)
            self._see(row["loss"], [one.steps[index].grad_norm for one in writing], row["step"])
        self._taken = max(self._taken, ready)
        return seq

    def _count(self, tokens: float | None, step: float | None) -> float | None:
        """Tokens up to the end of this step. The steps before the first one that an attempt makes
        are taken to have had as many each; once a step does not say, the sum is not known.
        """
        if not len(self.table) and tokens is not None and step is not None:
            self._tokens = tokens * (step - 1)
        if self._tokens is not None:
            self._tokens = None if tokens is None else self._tokens + tokens
        return self._tokens

    def _see(
        self, loss: float | None, norms: Sequence[float | str | None], step: float | None
    ) -> None:
        if loss is not None:
            self.first_loss = loss if self.first_loss is None else self.first_loss
            self.last_loss = loss
        told = [loss, *norms]
        if any(one is not None and not isfinite(float(one)) for one in told):
            self.not_finite += 1
            if self.first_not_finite_step is None and step is not None:
                self.first_not_finite_step = int(step)


def _row(ranks: Sequence[RankSeries], index: int) -> dict[str, float | None]:
    """Ranks wait for each other, so the longest step is the job's."""
    steps = [series.steps[index] for series in ranks]
    step_s = max(step.step_s for step in steps)
    tokens: dict[tuple[int, ...], float | None] = {}
    for series, step in zip(ranks, steps, strict=True):
        # Ranks with the same stages are replicas with tokens of their own.
        stages = series.start.stages if series.start else ()
        so_far = tokens.get(stages, 0.0)
        tokens[stages] = None if so_far is None or step.tokens is None else so_far + step.tokens
    known = [one for one in tokens.values() if one is not None]
    bubbles = [
        bubble
        for step in steps
        if step.compute_s is not None
        and (bubble := formulas.measured_bubble(step.compute_s, step.step_s)) is not None
    ]
    flops = [step.flops for step in steps if step.flops is not None]
    is_told = len(flops) == len(steps) and all(step.step_s > 0 for step in steps)
    loss = next((step.loss for step in steps if step.loss is not None), None)
    return {
        "time_s": max(step.time_s for step in steps),
        "step": steps[0].step,
        "step_s": step_s,
        "tokens": min(known) if known else None,
        "tokens_per_s": formulas.throughput(min(known), step_s) if known else None,
        "flops_per_s": sum(flops) / step_s if is_told else None,
        "bubble": fmean(bubbles) if len(bubbles) == len(steps) else None,
        "loss": None if loss is None else float(loss),
    }
