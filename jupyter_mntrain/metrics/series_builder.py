"""Series builder: turns what a job's ranks write into rows, step by step.

The only place where journals become numbers: every page, table and picture takes them from here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from jupyter_mntrain.metrics.downsampled.samples import MOST_TEXTS
from jupyter_mntrain.metrics.events import OtherTraffic
from jupyter_mntrain.metrics.history import JobHistory
from jupyter_mntrain.metrics.rows.columns import Table, page_columns
from jupyter_mntrain.metrics.rows.job_rows import JobRows, job_figures
from jupyter_mntrain.metrics.rows.link_rows import LinkRows
from jupyter_mntrain.metrics.rows.rank_rows import RankRows, with_mfu
from jupyter_mntrain.metrics.series import (
    EvaluationColumns,
    JobColumns,
    JobSeries,
    LinkColumns,
    RankColumns,
)
from jupyter_mntrain.metrics.summarizer import summarize
from jupyter_mntrain.metrics.summary import JobSummary, WrittenText
from jupyter_mntrain.metrics.trace.sent_messages import RecentMessages
from jupyter_mntrain.model.ids import JobId, Rank
from jupyter_mntrain.model.records.metrics import RankEvaluation, RankStart, RankText
from jupyter_mntrain.model.records.node import Capacity, LinkMeasurement
from jupyter_mntrain.model.records.sequences import DataPreview
from jupyter_mntrain.plan.link_capacities import LinkCapacities
from jupyter_mntrain.telemetry import formulas

POINTS = 600
"""Rows of a whole series: about the width of a chart in pixels."""
TEXT_CHARACTERS = 2000
"""Maximum number of characters of a prompt and of its text."""

EVALUATION_COLUMNS = ("time_s", "step", "loss")

PASSING = ("elapsed_s", "remaining_s", "remaining_low_s", "remaining_high_s")
"""Figures that change only with time."""

FINE_TABLES, LEAST_POINTS = 64, 100
"""Up to so many ranks are sent as finely as requested; more are drawn as a band."""

FULL_TABLES = 8
"""Up to so many ranks, tables have as many rows as a chart can show; beyond, fewer."""

Read = Callable[[Table], dict[str, list[float]]]

Heard = tuple[Rank | None, int]
"""Which rank reported it, and how much has been read."""

Written = TypeVar("Written", RankEvaluation, RankText)

Told = tuple[str, Capacity | None, tuple[LinkMeasurement, ...]]
"""A node, and the capacities of its links as it reports them."""


class SeriesBuilder:
    """Builds the rows and the summary of one job's newest attempt.

    Rows are numbered in the order they were taken, over all tables, so that a reader resumes with
    one number. Not safe for several threads at once.

    Args:
        stream: begins the name of the numbering; each attempt has a numbering of its own.
    """

    def __init__(self, job_id: JobId, stream: str) -> None:
        self._job_id = job_id
        self._base = stream
        self._summary: JobSummary | None = None
        self._begin(0)

    @property
    def stream(self) -> str:
        """The name of the row numbering."""
        return f"{self._base}-{self._attempt}"

    @property
    def summary(self) -> JobSummary:
        """The job's summary as of the last call of :meth:`extend`."""
        if self._summary is None:
            raise RuntimeError("extend() comes first")
        return self._summary

    def _begin(self, attempt: int) -> None:
        self._attempt = attempt
        self.seq = 0
        self._whole_up_to = 0
        """Readers below this number are sent all rows again: earlier ones have changed."""
        self._ranks: dict[Rank, RankRows] = {}
        self._job = JobRows()
        self._evaluations = Table(EVALUATION_COLUMNS)
        self._evaluated: Heard = (None, 0)
        self._texts: deque[tuple[int, WrittenText]] = deque(maxlen=MOST_TEXTS)
        self._read_texts: Heard = (None, 0)
        self._data: tuple[int, DataPreview] | None = None
        self._links: dict[str, LinkRows] = {}
        self._traffic: dict[str, OtherTraffic] = {}
        self._messages = RecentMessages()
        self._capacities = LinkCapacities()
        self._told_of_links: list[Told] = []
        """Sources of the capacities, which are many and rarely change."""
        self._node_of: dict[int, str] = {}

    def extend(self, history: JobHistory, now_s: float) -> None:
        """Add what is new. A new attempt starts over.

        Args:
            now_s: Unix time, for how long an unfinished job has been running.
        """
        attempt, before = history.view.attempt, self.seq
        if attempt.number != self._attempt:
            self._begin(attempt.number)
        room, is_fine = room_of(attempt.world_size), attempt.world_size <= FINE_TABLES
        for placement in attempt.placements:
            for rank in placement.ranks:
                if (series := history.ranks.get(Rank(rank))) is not None:
                    if rank not in self._ranks:
                        self._ranks[Rank(rank)] = RankRows(
                            Rank(rank), placement, room, has_extremes=is_fine
                        )
                    self._ranks[Rank(rank)].series = series
        self._extend_links(history)
        self._extend_job(history)
        self._extend_ranks(history)
        self._extend_evaluations(history)
        self._extend_texts(history)
        if self._data is None and history.data is not None:
            self.seq += 1
            self._data = (self.seq, history.data)
        summary = summarize(
            history,
            now_s=now_s,
            ranks=self._ranks,
            job=self._job,
            links=self._links,
            capacities=self._capacities,
            evaluation_loss=self._evaluations.last("loss"),
            sample=self._texts[-1][1] if self._texts else None,
            peak_flops_per_s=self._peak(),
            schedule_bubble=self._bubble_of_schedule(history.is_whole),
            traffic=[one for traffic in self._traffic.values() for one in traffic.events],
            messages=self._messages.of(history),
        )
        if self.seq == before and self._summary and not _is_alike(summary, self._summary):
            self.seq += 1  # readers lack no row, but what is said of all of them
        self._summary = summary

    def whole(self, points: int = POINTS) -> JobSeries:
        """Return all rows, at most ``points`` per table, or fewer if there are very many ranks."""
        tables = max(len(self._ranks), len(self._links))
        fewer = min(points, max(LEAST_POINTS, points * FINE_TABLES // max(1, tables)))
        return self._series(
            0, lambda table: table.whole(points if table is self._job.table else fewer)
        )

    def since(self, seq: int) -> JobSeries:
        """Return rows numbered above ``seq``; all rows if those have been joined or changed."""
        tables = [known.table for known in self._ranks.values()]
        tables += [self._job.table, self._evaluations]
        tables += [link.table for link in self._links.values()]
        joined = max((table.joined_up_to for table in tables), default=0)
        if seq <= 0 or seq > self.seq or seq < max(joined, self._whole_up_to):
            return self.whole()
        return self._series(seq, lambda table: table.since(seq))

    def _extend_links(self, history: JobHistory) -> None:
        placements = history.view.attempt.placements
        for placement in placements if len(placements) > 1 else ():
            if placement.node not in self._links:
                self._traffic[placement.node] = OtherTraffic(placement.node)
                self._links[placement.node] = LinkRows(placement, room_of(len(placements)))
            before, link = self.seq, self._links[placement.node]
            table, count = link.table, len(link.table)
            self.seq = link.extend(history, before)
            if link.table is not table:
                self._traffic[placement.node] = OtherTraffic(placement.node)
                self._replaced(count, before)
            if link.basis == "interface" and self.seq > before:
                rows = link.table.since(max(before, link.table.joined_up_to))
                self._traffic[placement.node].see(rows, link.capacity_bytes_per_s)
        self._node_of = {rank: place.node for place in placements for rank in place.ranks}
        told = [(node, link.given, link.links) for node, link in self._links.items()]
        if told == self._told_of_links:
            return
        given = history.view.spec.link_capacity_bytes_per_s
        self._told_of_links = told
        self._capacities = LinkCapacities(
            None if given is None else Capacity(bytes_per_s=given, source="given")
        )
        for one in told:
            self._capacities.add(*one)

    def _extend_ranks(self, history: JobHistory) -> None:
        depth = self._pipeline_stages(history.is_whole)
        for rank, known in self._ranks.items():
            before, table, count = self.seq, known.table, len(known.table)
            bubble = _schedule_bubble(known.start, depth)
            self.seq = known.extend(
                history.ranks[rank], self.seq, bubble, self._capacity_from(known.placement.node)
            )
            is_other = known.take_job_tokens(*self._job.tokens_per_step)
            if known.take_drawn_peak() or is_other or known.table is not table:
                # The MFU, the tokens or the shares of every earlier row have changed.
                self._replaced(count, before)

    def _extend_job(self, history: JobHistory) -> None:
        before, table, count = self.seq, self._job.table, len(self._job.table)
        self.seq = self._job.extend(history, before)
        if self._job.table is not table:
            self._replaced(count, before)

    def _replaced(self, count: int, before: int) -> None:
        """Mark ``count`` rows, numbered up to ``before``, as changed: they are sent again."""
        if count:
            self._whole_up_to = before + 1
            self.seq = max(self.seq, self._whole_up_to)  # rows without a new number are not sent

    def _capacity_from(self, node: str) -> Callable[[int], float | None]:
        """Return a function that gives the payload per second from a node to a rank's node."""

        def bytes_per_s(peer: int) -> float | None:
            capacity = self._capacities.between(node, self._node_of.get(peer, ""))
            return capacity.payload_bytes_per_s if capacity else None

        return bytes_per_s

    def _pipeline_stages(self, is_whole: bool) -> int | None:
        """Return the number of pipeline stages; ``None`` until all ranks have reported theirs."""
        if not is_whole:
            return None
        starts = (known.start for known in self._ranks.values() if known.start)
        return len({stage for start in starts for stage in start.stages})

    def _bubble_of_schedule(self, is_whole: bool) -> float | None:
        starts = [known.start for known in self._ranks.values()]
        told = [one for one in starts if one is not None and one.microbatches and one.stages]
        if not told or len(starts) < 2:
            return None
        return _schedule_bubble(told[0], self._pipeline_stages(is_whole))

    def _peak(self) -> float | None:
        """Return the peak of all devices together; ``None`` if one is unknown."""
        peaks = [known.peak_flops_per_s for known in self._ranks.values()]
        told = [peak for peak in peaks if peak is not None]
        return sum(told) if told and len(told) == len(peaks) else None

    def _extend_evaluations(self, history: JobHistory) -> None:
        told = history.evaluations
        new, self._evaluated = _new(told, self._evaluated)
        if len(new) == len(told):
            self._replaced(len(self._evaluations), self.seq)
            self._evaluations = Table(EVALUATION_COLUMNS)
        for one in new:
            self.seq += 1
            row = {"time_s": one.time_s, "step": one.step, "loss": float(one.loss)}
            self._evaluations.append(self.seq, row)

    def _extend_texts(self, history: JobHistory) -> None:
        told = history.texts
        new, self._read_texts = _new(told, self._read_texts)
        if len(new) == len(told):
            self._replaced(len(self._texts), self.seq)
            self._texts.clear()
        for one in new:
            self.seq += 1
            self._texts.append((self.seq, _sample(one)))

    def _series(self, since: int, read: Read) -> JobSeries:
        return JobSeries(
            job_id=self._job_id,
            attempt=self._attempt,
            stream=self.stream,
            since=since,
            seq=self.seq,
            summary=self.summary,
            ranks=tuple(
                RankColumns(rank=rank, **page_columns(known.figures(read(known.table))))
                for rank, known in sorted(self._ranks.items())
            ),
            job=JobColumns(
                **page_columns(with_mfu(job_figures(read(self._job.table)), self._peak()))
            ),
            links=tuple(
                LinkColumns(node=node, **page_columns(read(link.table)))
                for node, link in self._links.items()
            ),
            evaluation=EvaluationColumns(**page_columns(read(self._evaluations))),
            texts=tuple(text for seq, text in self._texts if seq > since),
            data=self._data[1] if self._data is not None and self._data[0] > since else None,
        )


def _is_alike(one: JobSummary, other: JobSummary) -> bool:
    """Whether two summaries differ only by the time that has passed."""
    passing = {name: getattr(other, name) for name in PASSING}
    return msgspec.structs.replace(one, **passing) == other


def _new(told: Sequence[Written], read: Heard) -> tuple[Sequence[Written], Heard]:
    """Return what a rank has written since the last read; all of it if the rank is another one."""
    rank = told[0].rank if told else None
    done = read[1] if read[0] == rank else 0
    return told[done:], (rank, len(told))


def room_of(tables: int) -> float:
    """Return the share of the usual number of rows that each of so many tables gets."""
    return min(1.0, FULL_TABLES / max(1, tables))


def _schedule_bubble(start: RankStart | None, stages: int | None) -> float | None:
    """Return the bubble that this job's schedule implies for equal stages.

    0 without a pipeline, ``None`` until the number of stages is known.
    """
    if start is None or not start.microbatches or not start.stages:
        return 0.0
    if stages is None:
        return None
    virtual = len(start.stages)
    ranks = max(1, stages // virtual)
    return formulas.ideal_bubble(ranks, start.microbatches, virtual, schedule=start.schedule)


def _sample(one: RankText) -> WrittenText:
    prompt, text = (
        words if len(words) <= TEXT_CHARACTERS else f"{words[:TEXT_CHARACTERS]}…"
        for words in (one.prompt, one.text)
    )
    return WrittenText(time_s=one.time_s, step=one.step, prompt=prompt, text=text)
