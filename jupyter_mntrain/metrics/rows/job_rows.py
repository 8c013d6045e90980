"""Job rows: one row for each step of all ranks, over all attempts of the job."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from statistics import fmean, median

from jupyter_mntrain.metrics.downsampled.blocks import AT, Row, extremes
from jupyter_mntrain.metrics.downsampled.rank_series import RankSeries, together
from jupyter_mntrain.metrics.downsampled.samples import PAUSES, UNKNOWN
from jupyter_mntrain.metrics.history import JobHistory
from jupyter_mntrain.metrics.recent import LONG_STEP, STALL_S, WARM_UP_STEPS
from jupyter_mntrain.metrics.rows.columns import COUNTS, HIGH, LOW, Table, divided
from jupyter_mntrain.metrics.rows.rank_rows import round_of, take_rows
from jupyter_mntrain.metrics.time_left import Recurring
from jupyter_mntrain.model.records.metrics import RankStep
from jupyter_mntrain.telemetry import formulas

FIRST_LOSS, FIRST_BAD = AT["first_loss"], AT["first_not_finite_step"]
NOT_FINITE = AT["not_finite"]

COUNTED = (
    "steps", "steps_s", "wall_s", "made", "flops", "idle_s", *PAUSES, "long_s", "stall_s",
    "lost_s", "restart_s",
)  # fmt: skip
COLUMNS = ("time_s", "step", "tokens", *COUNTED, "loss")

EXTREMES = ("step_s", "tokens_per_s", "flops_per_s", "loss")

OF_ALL_RANKS = ("tokens", "made", "tokens_per_s", "flops", "flops_per_s", "idle_s")
"""Unknown while a rank reports nothing: it may be a replica with its own tokens."""

SILENT_AFTER_STEPS = 3
"""A rank without reports when another has made so many steps never reports any."""

UNTOLD = 0.25
"""Share of a step: a longer gap between two steps was spent on something else."""

USUAL_STEPS, USUAL_EVERY = 64, 8
"""Steps that a long one is compared with, and after how many their median is taken again."""

Figures = dict[str, float | None]


@dataclass
class _Reading:
    """How many steps of one attempt have been read."""

    taken: int = 0
    ended_s: float | None = None
    """When the last of them ended; ``None`` before the first one."""
    carried: dict[str, float] = field(default_factory=dict)
    """Seconds before its first step that belong to it: lost steps, and the restart."""


class JobRows:
    """The rows of a job, and what they show of its losses.

    An attempt that goes on from a checkpoint makes some steps again: those that the one before made
    are no rows, they are counted as lost.
    """

    def __init__(self) -> None:
        self._begin(())

    def _begin(self, basis: tuple[object, ...]) -> None:
        self._basis = basis
        """Who has written something, and where each attempt began: with another one, all rows are
        taken again."""
        self.table = Table(COLUMNS, WARM_UP_STEPS, extremes=EXTREMES)
        self.recurring = Recurring()
        self.first_loss: float | None = None
        self.last_loss: float | None = None
        self.not_finite = 0
        self.first_not_finite_step: int | None = None
        self.skipped = 0
        self.skipped_step: int | None = None
        self.lost_steps = 0
        self._reading = _Reading()
        self._is_in_newest = False
        self._tokens: float | None = None
        self._is_counting = False
        self._usual: deque[float] = deque(maxlen=USUAL_STEPS)
        self._usual_s = 0.0

    @property
    def tokens_per_step(self) -> tuple[float | None, float | None]:
        """The mean tokens per step, over the recent steps and over all."""
        table = self.table
        pairs = (
            (table.recent("made"), table.recent("steps")),
            (table.total("made"), table.total("steps")),
        )
        recent, total = (
            made / steps if made is not None and steps else None for made, steps in pairs
        )
        return recent, total

    def extend(self, history: JobHistory, seq: int) -> int:
        """Add the steps that every rank has finished; return the number of the last row."""
        attempts = [*(one for one in history.earlier if one), history.writing]
        begins = [_first_step(one) for one in attempts]
        counts = tuple(tuple(one.count for one in ranks) for ranks in attempts[:-1])
        basis = (*begins, *counts, len(history.writing))
        if basis != self._basis:
            self._begin(basis)
            for place, writing in enumerate(attempts[:-1]):
                cut = min((one for one in begins[place + 1 :] if one is not None), default=None)
                seq = self._take(writing, seq, is_whole=_is_whole(writing), cut=cut)
                self._end_attempt()
        if not self._is_in_newest:
            self._is_in_newest = True
            self.table.warm_up(WARM_UP_STEPS)
        return self._take_newest(history, seq)

    def _take_newest(self, history: JobHistory, seq: int) -> int:
        most = max((one.count for one in history.ranks.values()), default=0)
        writing = history.writing
        self.table.round = round_of(writing)
        if not history.is_whole and most < SILENT_AFTER_STEPS:
            return seq
        return self._take(writing, seq, is_whole=history.is_whole)

    def _take(
        self, writing: Sequence[RankSeries], seq: int, *, is_whole: bool, cut: int | None = None
    ) -> int:
        """Add the steps of one attempt that have not been read yet.

        Args:
            cut: the first step that a later attempt made again.
        """
        left_out = () if is_whole else OF_ALL_RANKS
        seq = self._take_blocks(writing, left_out, seq, cut)
        reading = self._reading
        if reading.taken < max((one.first for one in writing), default=0):
            return seq  # a rank has not reported steps that others already have in blocks
        ready = min((one.count for one in writing), default=0)
        for index in range(reading.taken, ready):
            steps = [one.step(index) for one in writing]
            row = self._counted(_row(writing, steps))
            if cut is not None and steps[0].step >= cut:
                self._lose(row)
                continue
            seq += 1
            self._finish(row, left_out)
            self.table.append(seq, row)
            self._see(row["loss"], steps, row["step"])
        reading.taken = max(reading.taken, ready)
        return seq

    def _take_blocks(
        self, writing: Sequence[RankSeries], left_out: Sequence[str], seq: int, cut: int | None
    ) -> int:
        """Add the steps that are in a block of some rank."""
        rows = []
        for both in together(writing, self._reading.taken):
            self._reading.taken = both.end
            steps = [series.mean(block) for series, block in zip(writing, both.rows, strict=True)]
            count = both.end - both.begin
            row = self._counted(_row(writing, steps, count, both.rows))
            if cut is not None and (over := min(count, steps[0].step - cut + 1)) > 0:
                self._lose(_part(row, over))
                if over == count:
                    continue
                row = _part(row, count - over) | {"step": cut - 1}
            self._finish(row, left_out)
            row |= _extremes(row, both.rows, steps)
            row |= dict.fromkeys(name for name in row if name.endswith(tuple(left_out)))
            rows.append(row)
            self._see_blocks(row["loss"], both.rows)
        size = max((one.blocks.size for one in writing), default=1)
        return take_rows(self.table, rows, size, seq)

    def _counted(self, row: Figures) -> Figures:
        """Add the seconds since the previous row, and what they were spent on."""
        reading = self._reading
        time_s, steps_s = row["time_s"] or 0.0, row["steps_s"] or 0.0
        paused_s = sum(row[name] or 0.0 for name in PAUSES if name != "data_s")
        wall_s = steps_s + paused_s
        if reading.ended_s is None:
            begun_s = time_s - wall_s
            if "until_s" in reading.carried:
                gap_s = begun_s - reading.carried.pop("until_s")
                reading.carried["restart_s"] = max(0.0, gap_s)
        elif time_s > reading.ended_s:
            # From one end of all ranks to the next: the longest step of any rank is more, where one
            # waits for another that evaluates, or they train apart; it is less only by what
            # nobody has reported.
            wall_s = time_s - reading.ended_s
            within_s = max(0.0, wall_s - paused_s)
            steps_s = within_s if within_s <= (1 + UNTOLD) * steps_s else steps_s
        reading.ended_s = max(time_s, reading.ended_s or time_s)
        row["data_s"] = min(row["data_s"] or 0.0, steps_s)
        return row | {"steps_s": steps_s, "wall_s": wall_s}

    def _lose(self, row: Figures) -> None:
        carried = self._reading.carried
        self.lost_steps += int(row["steps"] or 0)
        carried["lost_s"] = carried.get("lost_s", 0.0) + (row["wall_s"] or 0.0)

    def _end_attempt(self) -> None:
        """Carry the attempt's lost steps and its end time over to the next attempt."""
        before = self._reading
        carried = {"lost_s": before.carried.get("lost_s", 0.0)}
        if before.ended_s is not None:
            carried["until_s"] = before.ended_s
        elif "until_s" in before.carried:
            carried["until_s"] = before.carried["until_s"]
        self._reading = _Reading(carried=carried)
        self.table.warm_up(WARM_UP_STEPS)

    def _finish(self, row: Figures, left_out: Sequence[str]) -> None:
        """Add the figures that depend on earlier rows."""
        count, steps_s = int(row["steps"] or 1), row["steps_s"] or 0.0
        for name in ("lost_s", "restart_s"):
            row[name] = self._reading.carried.pop(name, 0.0)
            row["wall_s"] = (row["wall_s"] or 0.0) + (row[name] or 0.0)
        each_s = (steps_s - (row["data_s"] or 0.0)) / count
        is_long = count == 1 and 0 < LONG_STEP * self._usual_s < each_s
        is_stall = is_long and each_s > STALL_S
        row["long_s"] = each_s if is_long and not is_stall else 0.0
        row["stall_s"] = each_s if is_stall else 0.0
        self._usual.append(each_s)
        if len(self._usual) < USUAL_EVERY or self.table.rows % USUAL_EVERY == 0:
            self._usual_s = median(self._usual)
        row["tokens"] = self._count(row["made"], row["step"], count)
        row |= dict.fromkeys(left_out)
        row["step_s"] = steps_s / count
        for name in ("made", "flops"):
            value, rate = row[name], "tokens_per_s" if name == "made" else "flops_per_s"
            row[rate] = None if value is None else formulas.throughput(value, row["wall_s"] or 0.0)
        self.recurring.take(row, count)

    def _count(self, made: float | None, step: float | None, steps: int) -> float | None:
        """Return the total tokens up to the end of this row.

        Steps before the first known one are assumed to have as many tokens each. Once a step does
        not report its tokens, the total is unknown.
        """
        if not self._is_counting and made is not None and step is not None:
            self._tokens = made / steps * (step - steps)
        self._is_counting = True
        if self._tokens is not None:
            self._tokens = None if made is None else self._tokens + made
        return self._tokens

    def _see_blocks(self, loss: float | None, blocks: Sequence[Row]) -> None:
        """Count the steps of blocks in which a loss or a gradient norm was not finite."""
        told = [block[FIRST_LOSS] for block in blocks if block[FIRST_LOSS] != UNKNOWN]
        if loss is not None and told:
            self.first_loss = _mean(told) if self.first_loss is None else self.first_loss
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


def job_figures(columns: Mapping[str, list[float]]) -> dict[str, list[float]]:
    """Return columns for the page, with rates and shares instead of raw counts."""
    told = {name: column for name, column in columns.items() if name not in COUNTS}
    told["step_s"] = divided(columns, "steps_s", "steps")
    told["tokens_per_s"] = divided(columns, "made", "wall_s")
    told["flops_per_s"] = divided(columns, "flops", "wall_s")
    told["bubble"] = divided(columns, "idle_s", "steps_s")
    return told


def _mean(values: Sequence[float]) -> float | None:
    """Return the mean over ranks, or the exact value if all report the same."""
    if not values or UNKNOWN in values:
        return None
    if all(one == values[0] for one in values):
        return values[0]
    try:
        return fmean(values)
    except (ValueError, OverflowError):  # infinities of both signs; a sum that is too large
        return sum(one / len(values) for one in values)


def _part(row: Figures, steps: int) -> Figures:
    """Return the share of a row that belongs to so many of its steps."""
    share = steps / (row["steps"] or 1)
    return {
        name: value * share if name in COUNTS and value is not None else value
        for name, value in row.items()
    }


def _first_step(writing: Sequence[RankSeries]) -> int | None:
    """Return the first step of an attempt; ``None`` if it is not known yet."""
    firsts = [
        one.step(0).step if not one.first else int(one.blocks[0][AT["step"]]) - one.blocks.size + 1
        for one in writing
        if one.count
    ]
    if firsts:
        return min(firsts)
    resumed = [one.start.resumed_step for one in writing if one.start and one.start.resumed_step]
    return min(resumed) + 1 if resumed else None


def _is_whole(writing: Sequence[RankSeries]) -> bool:
    """Whether all ranks of an attempt have reported something."""
    sizes = [one.start.world_size for one in writing if one.start]
    return not sizes or len(writing) == max(sizes)


def _extremes(row: Figures, blocks: Sequence[Row], steps: Sequence[RankStep]) -> Figures:
    """Return the extremes of a block over all ranks.

    The job's longest step is the longest of any rank; its shortest one is the longest of the ranks'
    shortest ones. Rates are those of an average step.
    """
    told = [extremes(block) for block in blocks]
    low_s, high_s = (max(one[f"{end}step_s"] for one in told) for end in (LOW, HIGH))
    losses = [one for one, step in zip(told, steps, strict=True) if step.loss is not None]
    found: Figures = {
        "low_step_s": low_s,
        "high_step_s": high_s,
        "low_loss": _mean([one["low_loss"] for one in losses]),
        "high_loss": _mean([one["high_loss"] for one in losses]),
    }
    for name in ("tokens_per_s", "flops_per_s"):
        rate, step_s = row[name], row["step_s"]
        amount = None if rate is None or step_s is None else rate * step_s
        for end, seconds in ((LOW, high_s), (HIGH, low_s)):
            found[end + name] = amount / seconds if amount is not None and seconds > 0 else None
    return found


def _row(
    ranks: Sequence[RankSeries],
    steps: Sequence[RankStep],
    count: int = 1,
    blocks: Sequence[Row] = (),
) -> Figures:
    """Return one row for a step of all ranks, or for ``count`` steps given their averages."""
    step_s = max(step.step_s for step in steps)
    tokens: dict[tuple[int, ...], float | None] = {}
    for series, step in zip(ranks, steps, strict=True):
        # Ranks with the same stages are replicas with tokens of their own.
        stages = series.start.stages if series.start else ()
        so_far = tokens.get(stages, 0.0)
        is_count = step.tokens is not None and step.tokens >= 0
        tokens[stages] = so_far + step.tokens if so_far is not None and is_count else None  # type: ignore[operator]
    known = [one for one in tokens.values() if one is not None]
    bubbles = [
        bubble
        for step in steps
        if step.compute_s is not None
        and (bubble := formulas.measured_bubble(step.compute_s, step.step_s)) is not None
    ]
    flops = [step.flops for step in steps if step.flops is not None]
    is_told = len(flops) == len(steps) and all(step.step_s > 0 for step in steps)
    losses = [float(step.loss) for step in steps if step.loss is not None]
    if blocks:
        pauses = {name: max(block[AT[name]] for block in blocks) for name in PAUSES}
    else:
        pauses = {name: max(getattr(step, name) for step in steps) for name in PAUSES}
    is_busy = bubbles and len(bubbles) == len(steps)
    return {
        "time_s": max(step.time_s for step in steps),
        "step": steps[0].step,
        "steps": count,
        "steps_s": step_s * count,
        "made": min(known) * count if known else None,
        "flops": sum(flops) * count if is_told else None,
        "idle_s": fmean(bubbles) * step_s * count if is_busy else None,
        "loss": _mean(losses),
        **pauses,
    }
