"""Series builder: turns what a job's ranks wrote into columns, step by step."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

import msgspec

from jupyter_mntrain.metrics.columns import Table
from jupyter_mntrain.metrics.history import JobHistory, RankSeries
from jupyter_mntrain.metrics.link_rows import LinkRows
from jupyter_mntrain.metrics.page_entries import JobNumbers
from jupyter_mntrain.metrics.series import (
    Column,
    EvaluationColumns,
    JobColumns,
    JobSeries,
    LinkColumns,
    RankColumns,
    WrittenText,
)
from jupyter_mntrain.metrics.summary import elapsed_s
from jupyter_mntrain.model.ids import JobId, Rank
from jupyter_mntrain.model.records.job import TERMINAL
from jupyter_mntrain.model.records.metrics import RankStart, RankStep, RankText
from jupyter_mntrain.telemetry import formulas

POINTS = 600
"""Rows of a whole series unless asked otherwise: a chart is about as many pixels wide."""

RECENT_STEPS = 10
"""What "now" is the median of."""

SILENT_AFTER_STEPS = 3
"""A rank that has written nothing when another has done these writes nothing at all."""

MOST_TEXTS = 50
"""Of what the model wrote: people look at the newest."""

TEXT_CHARACTERS = 2000
"""Of a prompt and of what was written to it: a notebook keeps them."""

RANK_COLUMNS = (
    "time_s",
    "step",
    "step_s",
    "tokens_per_s",
    "pace_tokens_per_s",
    "mfu",
    "compute",
    "send",
    "wait",
    "bubble",
    "memory_bytes",
)
JOB_COLUMNS = ("time_s", "step", "tokens_per_s", "mfu", "bubble", "loss", "step_s")
PAGE_JOB_COLUMNS = JOB_COLUMNS[:-1]
EVALUATION_COLUMNS = ("time_s", "step", "loss")


@dataclass(slots=True)
class _RankTable:
    node: str
    own_node: range
    table: Table = field(default_factory=lambda: Table(RANK_COLUMNS))
    taken: int = 0
    start: RankStart | None = None


class SeriesBuilder:
    """The rows of one job's newest attempt.

    Rows are numbered in the order they were taken, over all tables, so that a reader resumes with
    one number. Not safe for several threads at once.

    Args:
        stream: begins the name of the numbering; each attempt has a numbering of its own.
    """

    def __init__(self, job_id: JobId, stream: str) -> None:
        self._job_id = job_id
        self._base = stream
        self._begin(0)

    @property
    def stream(self) -> str:
        """Names the numbering."""
        return f"{self._base}-{self._attempt}"

    def _begin(self, attempt: int) -> None:
        self._attempt = attempt
        self.seq = 0
        self._ranks: dict[Rank, _RankTable] = {}
        self._job = Table(JOB_COLUMNS)
        self._job_steps = 0
        self._evaluations = Table(EVALUATION_COLUMNS)
        self._evaluated = 0
        self._texts: deque[tuple[int, WrittenText]] = deque(maxlen=MOST_TEXTS)
        self._read_texts = 0
        self._links: dict[str, LinkRows] = {}

    def extend(self, history: JobHistory) -> bool:
        """Take what is new; ``True`` if there was anything. A new attempt begins afresh."""
        attempt = history.view.attempt
        is_new = attempt.number != self._attempt
        if is_new:
            self._begin(attempt.number)
        before = self.seq
        for placement in attempt.placements:
            for rank in placement.ranks:
                series = history.ranks.get(Rank(rank))
                if series is not None:
                    known = self._ranks.setdefault(
                        Rank(rank), _RankTable(placement.node, placement.ranks)
                    )
                    known.start = series.start
        capacities = self._extend_links(history)
        for rank, known in self._ranks.items():
            self._extend_rank(known, history.ranks[rank], capacities.get(known.node))
        self._extend_job(history)
        self._extend_evaluations(history)
        self._extend_texts(history)
        return is_new or self.seq > before

    def whole(self, points: int = POINTS) -> JobSeries:
        """Everything, thinned to at most ``points`` rows per table."""
        return self._series(0, {"points": points})

    def since(self, seq: int) -> JobSeries:
        """Rows numbered above ``seq``; everything, if those are no longer told apart."""
        tables = [known.table for known in self._ranks.values()]
        tables += [self._job, self._evaluations]
        tables += [link.table for link in self._links.values()]
        joined = max((table.joined_up_to for table in tables), default=0)
        if seq <= 0 or seq > self.seq or seq < joined:
            return self.whole()
        return self._series(seq, {})

    def numbers(self, history: JobHistory, now_s: float) -> JobNumbers:
        """Where the job stands, over its last steps.

        Args:
            history: the one that was taken last.
            now_s: Unix time.
        """
        starts = [known.start for known in self._ranks.values() if known.start]
        total = next((start.total_steps for start in starts if start.total_steps), None)
        steps = self._job.last("step", 1)
        step = int(steps[0]) if steps else 0
        step_s = self._recent("step_s")
        is_over = history.view.state in TERMINAL
        losses = self._job.last("loss", RECENT_STEPS)
        evaluations = self._evaluations.last("loss", 1)
        return JobNumbers(
            step=step,
            total_steps=total,
            step_s=step_s,
            elapsed_s=elapsed_s(history.view, now_s),
            remaining_s=(
                max(0, total - step) * step_s if total and step_s and not is_over else None
            ),
            tokens_per_s=self._recent("tokens_per_s"),
            mfu=self._recent("mfu"),
            bubble=self._recent("bubble"),
            loss=losses[-1] if losses else None,
            evaluation_loss=evaluations[-1] if evaluations else None,
            slowest_rank=self._slowest(),
        )

    def _recent(self, name: str) -> float | None:
        values = self._job.last(name, RECENT_STEPS)
        return median(values) if values else None

    def _slowest(self) -> Rank | None:
        paces = {
            rank: median(values)
            for rank, known in self._ranks.items()
            if (values := known.table.last("pace_tokens_per_s", RECENT_STEPS))
        }
        return min(paces, key=lambda rank: paces[rank]) if len(paces) > 1 else None

    def _extend_links(self, history: JobHistory) -> dict[str, float]:
        """Bytes per second that each node's link can carry, where that is known."""
        placements = history.view.attempt.placements
        if len(placements) < 2:
            return {}
        capacities = {}
        for placement in placements:
            link = self._links.setdefault(placement.node, LinkRows(placement))
            self.seq = link.extend(history, self.seq)
            if link.capacity is not None:
                capacities[placement.node] = link.capacity.bytes_per_s
        return capacities

    def _extend_rank(self, known: _RankTable, series: RankSeries, capacity: float | None) -> None:
        bubble = self._schedule_bubble(known.start)
        for step in series.steps[known.taken :]:
            self.seq += 1
            known.table.append(self.seq, _rank_row(step, known, capacity, bubble))
        known.taken = len(series.steps)

    def _schedule_bubble(self, start: RankStart | None) -> float:
        """Of a balanced pipeline with this job's schedule; 0 without a pipeline."""
        if start is None or not start.microbatches or not start.stages:
            return 0.0
        stages = {
            stage for known in self._ranks.values() if known.start for stage in known.start.stages
        }
        virtual = len(start.stages)
        ranks = max(1, len(stages) // virtual)
        return formulas.ideal_bubble(ranks, start.microbatches, virtual, schedule=start.schedule)

    def _extend_job(self, history: JobHistory) -> None:
        most = max((len(one.steps) for one in history.ranks.values()), default=0)
        expected = history.view.spec.world_size
        if len(history.ranks) < expected and most < SILENT_AFTER_STEPS:
            return
        writing = [one for one in history.ranks.values() if one.steps or one.start]
        ready = min((len(one.steps) for one in writing), default=0)
        for index in range(self._job_steps, ready):
            self.seq += 1
            self._job.append(self.seq, _job_row(writing, index))
        self._job_steps = max(self._job_steps, ready)

    def _extend_evaluations(self, history: JobHistory) -> None:
        for one in history.evaluations[self._evaluated :]:
            self.seq += 1
            row = {"time_s": one.time_s, "step": one.step, "loss": one.loss}
            self._evaluations.append(self.seq, row)
            self._evaluated += 1

    def _extend_texts(self, history: JobHistory) -> None:
        for one in history.texts[self._read_texts :]:
            self.seq += 1
            self._texts.append((self.seq, _written(one)))
            self._read_texts += 1

    def _series(self, since: int, how: Mapping[str, int]) -> JobSeries:
        def columns(table: Table) -> dict[str, Column]:
            return table.whole(how["points"]) if how else table.since(since)

        job = columns(self._job)
        return JobSeries(
            job_id=self._job_id,
            attempt=self._attempt,
            stream=self.stream,
            since=since,
            seq=self.seq,
            ranks=tuple(
                _rank_columns(rank, known, columns(known.table))
                for rank, known in sorted(self._ranks.items())
            ),
            job=JobColumns(**{name: job[name] for name in PAGE_JOB_COLUMNS}),
            links=tuple(self._link(link, columns(link.table)) for link in self._links.values()),
            evaluation=EvaluationColumns(**columns(self._evaluations)),
            texts=tuple(text for seq, text in self._texts if seq > since),
        )

    def _link(self, link: LinkRows, columns: dict[str, Column]) -> LinkColumns:
        return LinkColumns(
            node=link.placement.node,
            interface=link.placement.interface,
            basis=link.basis,
            peers=tuple(self._peers(link)),
            capacity_bytes_per_s=link.capacity.bytes_per_s if link.capacity else None,
            capacity_source=link.capacity.source if link.capacity else None,
            **columns,
        )

    def _peers(self, link: LinkRows) -> Iterator[str]:
        """Names of the nodes this node's ranks talk to, each once."""
        neighbors = {
            Rank(peer)
            for rank, known in self._ranks.items()
            if rank in link.placement.ranks and known.start
            for peer in known.start.neighbors
        }
        nodes = {self._ranks[rank].node: None for rank in sorted(neighbors) if rank in self._ranks}
        nodes.pop(link.placement.node, None)
        yield from nodes


def _written(one: RankText) -> WrittenText:
    prompt, text = (
        words if len(words) <= TEXT_CHARACTERS else f"{words[:TEXT_CHARACTERS]}…"
        for words in (one.prompt, one.text)
    )
    return WrittenText(time_s=one.time_s, step=one.step, prompt=prompt, text=text)


def _rank_row(
    step: RankStep, known: _RankTable, capacity: float | None, bubble: float
) -> dict[str, float | None]:
    row: dict[str, float | None] = {
        "time_s": step.time_s,
        "step": step.step,
        "step_s": step.step_s,
        "memory_bytes": step.memory_bytes,
        "mfu": formulas.mfu(
            step.flops, step.step_s, known.start.peak_flops_per_s if known.start else None
        ),
    }
    if step.tokens is not None:
        row["tokens_per_s"] = formulas.throughput(step.tokens, step.step_s)
        if step.compute_s:
            row["pace_tokens_per_s"] = formulas.throughput(step.tokens, step.compute_s)
    if step.compute_s is None:
        return row
    sent = sum(size for peer, size in step.sent_bytes.items() if peer not in known.own_node)
    shares = formulas.step_shares(
        step.step_s,
        step.compute_s,
        optimizer_s=step.optimizer_s or 0.0,
        transfer_s=sent / capacity if capacity else None,
        bubble=bubble,
    )
    if shares is not None:
        row |= {
            "compute": shares.compute,
            "send": shares.send,
            "wait": shares.wait,
            "bubble": shares.bubble,
        }
    return row


def _job_row(ranks: Sequence[RankSeries], index: int) -> dict[str, float | None]:
    """One step of all ranks together; they wait for each other, so the longest is the step's."""
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
    return {
        "time_s": max(step.time_s for step in steps),
        "step": steps[0].step,
        "step_s": step_s,
        "tokens_per_s": formulas.throughput(min(known), step_s) if known else None,
        "mfu": formulas.job_mfu(
            [step.flops for step in steps],
            step_s,
            [series.start.peak_flops_per_s if series.start else None for series in ranks],
        ),
        "bubble": fmean(bubbles) if len(bubbles) == len(steps) else None,
        "loss": next((step.loss for step in steps if step.loss is not None), None),
    }


def _rank_columns(rank: Rank, known: _RankTable, columns: dict[str, Column]) -> RankColumns:
    plain = RankColumns(rank=rank, node=known.node, **columns)  # type: ignore[arg-type]
    if known.start is None:
        return plain
    return msgspec.structs.replace(
        plain,
        local_rank=known.start.local_rank,
        stages=known.start.stages,
        layers=known.start.layers,
        device=known.start.device,
    )
