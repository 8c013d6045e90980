"""Job rows: one step of all ranks together."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from statistics import fmean

from jupyter_mntrain.metrics.history import JobHistory
from jupyter_mntrain.metrics.recent import WARM_UP_STEPS
from jupyter_mntrain.metrics.rows.columns import HIGH, LOW, Table
from jupyter_mntrain.metrics.rows.rank_rows import round_of, take_rows
from jupyter_mntrain.metrics.thinned.blocks import AT, Row, extremes
from jupyter_mntrain.metrics.thinned.rank_series import RankSeries, together
from jupyter_mntrain.metrics.thinned.samples import UNKNOWN
from jupyter_mntrain.model.records.metrics import RankStep
from jupyter_mntrain.telemetry import formulas

FIRST_LOSS, FIRST_BAD = AT["first_loss"], AT["first_not_finite_step"]
NOT_FINITE = AT["not_finite"]

COLUMNS = ("time_s", "step", "step_s", "tokens", "tokens_per_s", "flops_per_s", "bubble", "loss")

EXTREMES = ("step_s", "tokens_per_s", "flops_per_s", "loss")

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
        self.table = Table(COLUMNS, WARM_UP_STEPS, extremes=EXTREMES)
        self.first_loss: float | None = None
        self.last_loss: float | None = None
        self.not_finite = 0
        self.first_not_finite_step: int | None = None
        self.skipped = 0
        self.skipped_step: int | None = None
        self._taken = 0
        self._tokens: float | None = None
        self._is_counting = False

    def extend(self, history: JobHistory, seq: int) -> int:
        """Take the steps that every rank has finished; returns the number of the last row."""
        most = max((one.count for one in history.ranks.values()), default=0)
        writing = history.writing
        if len(writing) != self._writers:
            self._begin(len(writing))
        self.table.round = round_of(writing)
        if not history.is_whole and most < SILENT_AFTER_STEPS:
            return seq
        left_out = () if history.is_whole else OF_ALL_RANKS
        seq = self._take_blocks(writing, left_out, seq)
        if self._taken < max((one.first for one in writing), default=0):
            return seq  # a rank has not told what others have joined to blocks
        ready = min((one.count for one in writing), default=0)
        for index in range(self._taken, ready):
            seq += 1
            steps = [one.step(index) for one in writing]
            row = _row(writing, steps)
            row["tokens"] = self._count(row["tokens"], row["step"])
            row |= dict.fromkeys(left_out)
            self.table.append(seq, row)
            self._see(row["loss"], steps, row["step"])
        self._taken = max(self._taken, ready)
        return seq

    def _count(self, tokens: float | None, step: float | None, steps: int = 1) -> float | None:
        """Tokens up to the end of this step. The steps before the first one that an attempt makes
        are taken to have had as many each; once a step does not say, the sum is not known.

        Args:
            steps: that had so many tokens each, up to this one.
        """
        if not self._is_counting and tokens is not None and step is not None:
            self._tokens = tokens * (step - steps)
        self._is_counting = True
        if self._tokens is not None:
            self._tokens = None if tokens is None else self._tokens + tokens * steps
        return self._tokens

    def _take_blocks(self, writing: Sequence[RankSeries], left_out: Sequence[str], seq: int) -> int:
        """Take the steps that are in a block of some rank."""
        rows = []
        for both in together(writing, self._taken):
            self._taken = both.end
            steps = [series.mean(block) for series, block in zip(writing, both.rows, strict=True)]
            row = _row(writing, steps)
            row["tokens"] = self._count(row["tokens"], row["step"], both.end - both.begin)
            row |= _extremes(row, both.rows, steps)
            row |= dict.fromkeys(name for name in row if name.endswith(tuple(left_out)))
            rows.append(row)
            self._see_blocks(row["loss"], both.rows)
        size = max((one.blocks.size for one in writing), default=1)
        return take_rows(self.table, rows, size, seq)

    def _see_blocks(self, loss: float | None, blocks: Sequence[Row]) -> None:
        """Each rank tells in how many of its steps a loss or a norm was not finite."""
        told = [block[FIRST_LOSS] for block in blocks if block[FIRST_LOSS] != UNKNOWN]
        if loss is not None and told:
            self.first_loss = told[0] if self.first_loss is None else self.first_loss
            self.last_loss = loss
        self.not_finite += int(max(block[NOT_FINITE] for block in blocks))
        firsts = [block[FIRST_BAD] for block in blocks if block[FIRST_BAD] != UNKNOWN]
        if firsts and self.first_not_finite_step is None:
            self.first_not_finite_step = int(min(firsts))

    def _see(self, loss: float | None, steps: Sequence[RankStep], step: float | None) -> None:
        if loss is not None:
            self.first_loss = loss if self.first_loss is None else self.first_loss
            self.last_loss = loss
        told = [loss, *(one.grad_norm for one in steps)]
        newest = max(steps, key=lambda one: one.skipped or 0)
        if newest.skipped:
            self.skipped, self.skipped_step = newest.skipped, newest.skipped_step
        if newest.is_skipped:
            return
        if any(one is not None and not isfinite(float(one)) for one in told):
            self.not_finite += 1
            if self.first_not_finite_step is None and step is not None:
                self.first_not_finite_step = int(step)


def _extremes(
    row: dict[str, float | None], blocks: Sequence[Row], steps: Sequence[RankStep]
) -> dict[str, float | None]:
    """Of a block of all ranks: the job's longest step is the longest of any rank, its shortest one
    the longest of the ranks' shortest ones. Rates are those of what a step does on average.
    """
    told = [extremes(block) for block in blocks]
    low_s, high_s = (max(one[f"{end}step_s"] for one in told) for end in (LOW, HIGH))
    loss = next((one for one, step in zip(told, steps, strict=True) if step.loss is not None), {})
    found: dict[str, float | None] = {
        "low_step_s": low_s,
        "high_step_s": high_s,
        "low_loss": loss.get("low_loss"),
        "high_loss": loss.get("high_loss"),
    }
    for name in ("tokens_per_s", "flops_per_s"):
        rate, step_s = row[name], row["step_s"]
        amount = None if rate is None or step_s is None else rate * step_s
        for end, seconds in ((LOW, high_s), (HIGH, low_s)):
            found[end + name] = amount / seconds if amount is not None and seconds > 0 else None
    return found


def _row(ranks: Sequence[RankSeries], steps: Sequence[RankStep]) -> dict[str, float | None]:
    """Ranks wait for each other, so the longest step is the job's."""
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
