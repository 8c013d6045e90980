"""Rank rows: the throughput, device use and time of one rank, step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from jupyter_mntrain.metrics.downsampled.blocks import AT, busy_rate, extremes
from jupyter_mntrain.metrics.downsampled.rank_series import RankSeries, together
from jupyter_mntrain.metrics.downsampled.samples import PAUSES, UNKNOWN
from jupyter_mntrain.metrics.recent import WARM_UP_STEPS
from jupyter_mntrain.metrics.rows.columns import COUNTS, HIGH, LOW, Table, divided
from jupyter_mntrain.metrics.summary import RankSummary
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.job import JobState, Placement
from jupyter_mntrain.model.records.metrics import ComparedTransfer, RankStart, RankStep
from jupyter_mntrain.telemetry import formulas

SHARES = ("compute", "coding", "send", "wait", "schedule_bubble")
SHARE_SECONDS = ("compute_s", "coding_s", "send_s", "wait_s", "bubble_s")
"""Seconds of a row's steps, of which these are the shares, in their order."""
COUNTED = ("steps", "steps_s", "wall_s", "made", "flops", "busy_s", *SHARE_SECONDS)
COLUMNS = ("time_s", "step", *COUNTED, "memory_bytes")
EXTREMES = ("step_s", "tokens_per_s", "pace_tokens_per_s", "flops_per_s", "compute")

BETWEEN = tuple(name for name in PAUSES if name != "data_s")
"""Pauses between steps."""

MEMORY, BUSY = AT["memory_bytes"], AT["busy_flops_per_s"]

WARM_UP = f"the first {WARM_UP_STEPS} steps are warm-up"
NOT_WHOLE = "not every rank reports tokens"
NO_TOKENS = "no tokens are reported: recorder.step(tokens=…)"
SOME_TOKENS = "some steps report no tokens, or an invalid number"
NO_FLOPS = "no FLOPs are reported: recorder.start(flops_per_token=…)"
NO_COMPUTE = "compute time is not reported: recorder.step(compute_s=…)"
NO_LOSS = "no loss is reported: recorder.step(loss=…)"
NO_MEMORY = "no memory is reported: recorder.step(memory_bytes=…)"

REDRAWN_FROM = 0.01
"""A peak that rises by less does not have all earlier rows sent again: of many ranks, one sees a
new best every few seconds, and no chart shows the difference."""

SUMMARY_DIGITS = 7
"""Significant digits: more than are shown, fewer than a float has."""


class RankRows:
    """The rows of one rank, and the peak that its MFU is relative to.

    Args:
        room: of the usual number of rows.
        has_extremes: of very many ranks a band is drawn, and the job's own rows keep the extremes.
    """

    def __init__(
        self, rank: Rank, placement: Placement, room: float = 1.0, *, has_extremes: bool = True
    ) -> None:
        self.rank = rank
        self.placement = placement
        self._neighbors = placement.ranks
        """Ranks on the same node, including this one."""
        self._extremes = EXTREMES if has_extremes else ()
        self._room = room
        self.series: RankSeries | None = None
        self._job_tokens: float | None = None
        """Of all replicas, per recent step; ``None`` while a rank has written nothing, or none is
        told."""
        self._scale: float | None = None
        """Mean ratio of the job's tokens per step to this rank's."""
        self._drawn_scale: float | None = None
        self._begin(0.0)
        self._best_flops_per_s = 0.0
        self._drawn_peak: float | None = None
        self._most_memory: int | None = None
        self._compared: dict[tuple[int, bool], ComparedTransfer] = {}
        """The newest of each boundary and direction."""
        self._summarized: tuple[object, RankSummary] | None = None
        """The newest summary, and what it depends on."""

    def _begin(self, bubble: float | None) -> None:
        self.table = Table(COLUMNS, WARM_UP_STEPS, extremes=self._extremes, room=self._room)
        self._taken = 0
        self._ended_s: float | None = None
        self._bubble = bubble
        self._capacities: dict[int, float | None] = {}
        """To peers, that rows were made with. Other nodes tell of them and of the schedule, at any
        time: with others all rows are made again, so that no figure depends on who told first."""

    @property
    def start(self) -> RankStart | None:
        return self.series.start if self.series else None

    @property
    def peak_flops_per_s(self) -> float | None:
        """The device's peak FLOPs per second, or the best rate seen if that is higher.

        A peak that is exceeded was measured while the device was busy with something else.
        """
        told = self.start.peak_flops_per_s if self.start else None
        return None if told is None else max(told, self._best_flops_per_s)

    def take_drawn_peak(self) -> bool:
        """Update the peak for drawing; return whether rows that were sent look different now."""
        drawn, peak = self._drawn_peak, self.peak_flops_per_s
        if drawn is not None and peak is not None and abs(peak / drawn - 1) < REDRAWN_FROM:
            return False
        self._drawn_peak = peak
        return drawn is not None and peak != drawn

    @property
    def peak_source(self) -> str | None:
        """How the peak was determined."""
        start, peak = self.start, self.peak_flops_per_s
        if start is None or start.peak_flops_per_s is None or peak is None:
            return None
        source = start.peak_source or "as reported"
        if peak <= start.peak_flops_per_s:
            return source
        return f"best seen: above {source}, which was measured under load"

    def extend(
        self,
        series: RankSeries,
        seq: int,
        bubble: float | None,
        capacity: Callable[[int], float | None],
    ) -> int:
        """Add new steps; return the number of the last row.

        Args:
            seq: number of the last row of any table.
            bubble: of the schedule; ``None`` while ranks that have told nothing may add to it.
            capacity: payload per second to another rank's node, where that is known.
        """
        self.series = series
        told = self._capacities.items()
        if bubble != self._bubble or any(capacity(peer) != one for peer, one in told):
            self._begin(bubble)
        self.table.round = round_of([series])
        rows = []
        for both in together([series], self._taken) if self._taken < series.first else ():
            block, self._taken = both.rows[0], both.end
            self._see(block[MEMORY], block[BUSY])
            count, paused_s = both.end - both.begin, sum(block[AT[name]] for name in BETWEEN)
            rows.append(self._row(series.mean(block), count, paused_s, bubble, capacity))
            rows[-1].update(extremes(block))
        seq = take_rows(self.table, rows, series.blocks.size, seq)
        for step in series.steps[self._taken - series.first :]:
            seq += 1
            memory = UNKNOWN if step.memory_bytes is None else step.memory_bytes
            self._see(memory, busy_rate(step, self._taken))
            self._compared |= {
                (one.boundary, one.is_gradient): one for one in step.compared_transfers
            }
            paused_s = sum(getattr(step, name) for name in BETWEEN)
            self.table.append(seq, self._row(step, 1, paused_s, bubble, capacity))
            self._taken += 1
        return seq

    def _see(self, memory: float, busy_flops_per_s: float) -> None:
        if memory != UNKNOWN:
            self._most_memory = max(int(memory), self._most_memory or 0)
        self._best_flops_per_s = max(self._best_flops_per_s, busy_flops_per_s)

    def _row(
        self,
        step: RankStep,
        count: int,
        paused_s: float,
        bubble: float | None,
        capacity: Callable[[int], float | None],
    ) -> dict[str, float | None]:
        """Return one row for ``count`` steps that are on average like this one.

        Args:
            paused_s: seconds before and between them.
        """
        steps_s = step.step_s * count
        wall_s = steps_s + paused_s
        if self._ended_s is not None and step.time_s > self._ended_s:
            wall_s = step.time_s - self._ended_s
        self._ended_s = max(step.time_s, self._ended_s or step.time_s)
        row: dict[str, float | None] = {
            "time_s": step.time_s,
            "step": step.step,
            "step_s": step.step_s,
            "steps": count,
            "steps_s": steps_s,
            "wall_s": wall_s,
            "memory_bytes": step.memory_bytes,
        }
        if step.flops is not None and step.step_s > 0:
            row["flops"] = step.flops * count
            row["flops_per_s"] = formulas.throughput(step.flops * count, wall_s)
        if step.tokens is not None and step.tokens >= 0:
            row["made"] = step.tokens * count
            row["tokens_per_s"] = formulas.throughput(step.tokens * count, wall_s)
            if step.compute_s:
                row["pace_tokens_per_s"] = formulas.throughput(step.tokens, step.compute_s)
        if step.compute_s is None:
            return row
        row["busy_s"] = step.compute_s * count
        shares = formulas.step_shares(
            step.step_s,
            step.compute_s,
            optimizer_s=step.optimizer_s or 0.0,
            coding_s=step.coding_s,
            transfer_s=self._transfer_s(step, capacity),
            bubble=bubble,
        )
        if shares is not None:
            row["compute"] = shares.compute
            for name, seconds in zip(SHARES, SHARE_SECONDS, strict=True):
                share = getattr(shares, name)
                row[seconds] = None if share is None else share * steps_s
        return row

    def _transfer_s(self, step: RankStep, capacity: Callable[[int], float | None]) -> float | None:
        """Return the seconds that the links need for a step's bytes; ``None`` if unknown."""
        if not exchanges(step):
            return None
        seconds = 0.0
        for peer, size in step.sent_bytes.items():
            if peer not in self._neighbors:  # those cross no link
                if peer not in self._capacities:
                    self._capacities[peer] = capacity(peer)
                bytes_per_s = self._capacities[peer]
                if not bytes_per_s:
                    return None
                seconds += size / bytes_per_s
        return seconds

    def figures(self, columns: dict[str, list[float]]) -> dict[str, list[float]]:
        """Return columns for the page, with rates and shares instead of raw counts.

        Tokens are those of all replicas; this rank's share of them is assumed to be constant.
        """
        told = {name: column for name, column in columns.items() if name not in COUNTS}
        told["step_s"] = divided(columns, "steps_s", "steps")
        told["flops_per_s"] = divided(columns, "flops", "wall_s")
        for share, seconds in zip(SHARES, SHARE_SECONDS, strict=True):
            told[share] = divided(columns, seconds, "steps_s")
        scale = self._scale
        for name, seconds in (("tokens_per_s", "wall_s"), ("pace_tokens_per_s", "busy_s")):
            told[name] = divided(columns, "made", seconds)
            for column in told.keys() & {name, LOW + name, HIGH + name}:
                told[column] = [
                    UNKNOWN if scale is None or one == UNKNOWN else one * scale
                    for one in told[column]
                ]
        return with_mfu(told, self.peak_flops_per_s)

    def take_job_tokens(self, recent: float | None, total: float | None) -> bool:
        """Take the tokens per step of all replicas, recent and overall.

        Return whether rows that were sent look different now.
        """
        made, steps = self.table.total("made"), self.table.total("steps")
        scale = total * steps / made if total is not None and made and steps else None
        self._job_tokens, self._scale = recent, scale
        drawn = self._drawn_scale
        if drawn is not None and scale is not None and abs(scale / drawn - 1) < REDRAWN_FROM:
            return False
        self._drawn_scale = scale
        return drawn != scale

    @property
    def pace_tokens_per_s(self) -> float | None:
        """The job's tokens over the time that this rank computed, in the recent steps."""
        return self._job_rate("busy_s")

    @property
    def _whole_rate(self) -> float | None:
        """Tokens of the job in all steps of the attempt, over the time that this rank took."""
        made = rate_of(self.table.total, "made", "wall_s")
        return None if made is None or self._scale is None else made * self._scale

    def _job_rate(self, seconds: str) -> float | None:
        spent, steps = self.table.recent(seconds), self.table.recent("steps")
        if self._job_tokens is None or not spent or steps is None:
            return None
        return formulas.throughput(self._job_tokens * steps, spent)

    def summary(self, state: JobState, pid: int | None, *, is_over: bool) -> RankSummary:
        """The rank as it is now; made again only when something of it has changed.

        Args:
            is_over: the job has ended: rates are of all steps of its last attempt.
        """
        series = self.series
        told = (series.start, series.end, series.progress) if series else ()
        of_job = (is_over, self._job_tokens, self._scale, self.peak_flops_per_s)
        basis = (state, pid, told, self.table, self._taken, *of_job)
        if self._summarized is None or self._summarized[0] != basis:
            self._summarized = basis, self._summarize(state, pid, is_over=is_over)
        return self._summarized[1]

    def _summarize(self, state: JobState, pid: int | None, *, is_over: bool) -> RankSummary:
        series, start, table = self.series, self.start, self.table
        flops_per_s = rate_of(table.total if is_over else table.recent, "flops", "wall_s")
        rate = self._whole_rate if is_over else self._job_rate("wall_s")
        figures: dict[str, float | None] = {
            "tokens_per_s": short(rate) or None,
            "pace_tokens_per_s": short(self.pace_tokens_per_s),
            "mfu": short(formulas.mfu(flops_per_s, self.peak_flops_per_s)),
        }
        for share, seconds in zip(SHARES, SHARE_SECONDS, strict=True):
            figures[share] = short(rate_of(table.recent, seconds, "steps_s"))
        return RankSummary(
            rank=self.rank,
            node=self.placement.node,
            state=state,
            local_rank=start.local_rank if start else 0,
            stages=start.stages if start else (),
            layers=start.layers if start else (),
            device=start.device if start else None,
            step=series.last_step if series else None,
            pid=pid,
            **figures,
            peak_source=self.peak_source,
            memory_bytes=self._most_memory,
            reserved_bytes=series.steps[-1].reserved_bytes if series and series.steps else None,
            missing=self._missing({**figures, "memory_bytes": self._most_memory}),
            compared_transfers=tuple(one for _, one in sorted(self._compared.items())),
            is_ready=series is not None and bool(series.start or series.end),
            progress=series.progress if series else None,
        )

    def _missing(self, figures: Mapping[str, float | None]) -> dict[str, str]:
        """Return why figures are unknown, by name; empty before the first step."""
        if not len(self.table) or None not in figures.values():
            return {}
        no_tokens = NOT_WHOLE if self.table.recent("made") is not None else NO_TOKENS
        if no_tokens is NO_TOKENS and any(one > 0 for one in self.table.single("made")):
            no_tokens = SOME_TOKENS
        reasons = {
            "tokens_per_s": no_tokens,
            "pace_tokens_per_s": no_tokens if figures["tokens_per_s"] is None else NO_COMPUTE,
            "mfu": NO_FLOPS,
            "compute": NO_COMPUTE,
            "memory_bytes": NO_MEMORY,
        }
        if len(self.table) <= WARM_UP_STEPS:
            reasons = dict.fromkeys(reasons, WARM_UP) | {"memory_bytes": NO_MEMORY}
        if self.start is not None and self.peak_flops_per_s is None:
            reasons["mfu"] = f"the peak of {self.start.device} is not known"
        return {name: why for name, why in reasons.items() if figures[name] is None}


def rate_of(count: Callable[[str], float | None], name: str, by: str) -> float | None:
    """Divide one count by another.

    Args:
        count: of some rows, by name: :meth:`Table.recent` or :meth:`Table.total`.
    """
    value, other = count(name), count(by)
    return None if value is None or not other else value / other


def exchanges(step: RankStep) -> bool:
    """Whether a step reports what it exchanged with whom.

    Empty counts are no report: ranks of a job on several nodes always exchange something.
    """
    return bool(step.sent_bytes or step.received_bytes)


def with_mfu(columns: dict[str, list[float]], peak: float | None) -> dict[str, list[float]]:
    """Replace ``flops_per_s`` with ``mfu``, relative to this peak."""
    others = dict(columns)
    # As formulas.mfu, without a call per value.
    for end in ("", LOW, HIGH):
        if f"{end}flops_per_s" not in others:
            continue
        others[f"{end}mfu"] = [
            UNKNOWN if not peak or one == UNKNOWN else min(1.0, one / peak)
            for one in others.pop(f"{end}flops_per_s")
        ]
    return others


def take_rows(table: Table, rows: Sequence[Mapping[str, float | None]], size: int, seq: int) -> int:
    """Add rows that stand for several steps each; return the number of the last one."""
    if rows and size > 1 and not len(table):
        table.begin(seq + len(rows), rows, size)
        return seq + len(rows)
    for row in rows:
        seq += 1
        table.append(seq, row)
    return seq


def round_of(writing: Iterable[RankSeries]) -> int:
    """Return the number of steps from one sync of replicas to the next; 0 without syncs."""
    told = (one.start.meets_every for one in writing if one.start)
    return next((one for one in told if one), 0)


def short(value: float | None) -> float | None:
    """Round to as many digits as are shown."""
    return None if value is None else float(f"{value:.{SUMMARY_DIGITS}g}")


def all_tell(steps: Sequence[RankStep]) -> bool:
    """Whether every step reports what it exchanged."""
    return bool(steps) and all(map(exchanges, steps))
