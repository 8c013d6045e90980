"""Job history: all samples of a job, merged from its nodes' journals. Any thread may read it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from jupyter_mntrain.metrics.downsampled.attempt_lines import AttemptLines
from jupyter_mntrain.metrics.downsampled.rank_series import RankSeries
from jupyter_mntrain.metrics.downsampled.samples import NodeSamples
from jupyter_mntrain.model.ids import NodeId, Rank
from jupyter_mntrain.model.records.job import TERMINAL, JobView
from jupyter_mntrain.model.records.metrics import (
    JournalLine,
    LinkSample,
    RankEvaluation,
    RankText,
)
from jupyter_mntrain.model.records.sequences import DataPreview


@dataclass(frozen=True, slots=True)
class JobHistory:
    """A consistent snapshot of a job, with all samples of its newest attempt.

    Args:
        view: the job as its participants tell it now.
        ranks: by global rank, ascending; only ranks that have written something.
        links: samples of the interface each node trains over, by node name.
        is_complete: every part has ended and every line of every node has been read.
    """

    view: JobView
    ranks: dict[Rank, RankSeries]
    links: dict[str, Sequence[LinkSample]]
    is_complete: bool
    earlier: Sequence[Sequence[RankSeries]] = ()
    """What the ranks of each attempt before wrote, oldest attempt first; empty if nothing is
    known."""
    clock_ahead_s: float = 0.0
    """How far the job's clock is ahead of this machine's."""

    @property
    def writing(self) -> list[RankSeries]:
        """The ranks that have reported their start or a step."""
        return [one for one in self.ranks.values() if one.is_writing]

    @property
    def is_whole(self) -> bool:
        """Whether all ranks have written something."""
        return len(self.writing) == self.view.attempt.world_size

    @property
    def is_caught_up(self) -> bool:
        """Whether every sample that the reachable nodes have reported has been read."""
        if self.view.state in TERMINAL:
            return self.is_complete
        parts = [part for part in self.view.parts if part.state != "unknown"]
        ranks = [rank for part in parts for rank in part.ranks]
        # Before the first step, what ranks do is read, too: a node samples its link at least.
        has_read = all(
            part.node in self.links or any(rank.rank in self.ranks for rank in part.ranks)
            for part in parts
            if part.state == "running"
        )
        return has_read and all(self._last_step(one.rank) >= (one.step or 0) for one in ranks)

    def _last_step(self, rank: Rank) -> int:
        series = self.ranks.get(rank)
        return series.steps[-1].step if series and series.steps else 0

    @property
    def evaluations(self) -> Sequence[RankEvaluation]:
        """The evaluations of the lowest rank that has any; all ranks report the same."""
        return next((one.evaluations for one in self.ranks.values() if one.evaluations), ())

    @property
    def data(self) -> DataPreview | None:
        """A preview of the training data, from the rank that reports one."""
        starts = (one.start for one in self.ranks.values() if one.start)
        return next((one.data for one in starts if one.data), None)

    @property
    def texts(self) -> Sequence[RankText]:
        """The texts that the model wrote, oldest first."""
        return next((one.texts for one in self.ranks.values() if one.texts), ())


class HistoryBuilder:
    """Collects journal lines of several nodes as they arrive; duplicates are ignored."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._attempts: dict[int, AttemptLines] = {}
        self._last_seq: dict[NodeId, int] = {}

    def last_seq(self, node_id: NodeId) -> int:
        """Return the number of the last line from a node, after which its journal is resumed."""
        return self._last_seq.get(node_id, 0)

    def load(self, node_id: NodeId, node: str, samples: NodeSamples) -> bool:
        """Take a node's downsampled samples in place of its lines up to ``samples.seq``.

        Returns:
            ``False`` when lines of it had been taken before, or it has nothing.

        Raises:
            ValueError: its blocks are damaged.
        """
        with self._lock:
            if self.last_seq(node_id) or not samples.is_whole:
                return False
            for one in samples.earlier:
                before = self._attempts.setdefault(one.attempt, AttemptLines())
                before.load(node, NodeSamples(one.attempt, samples.seq, one.ranks))
            lines = self._attempts.setdefault(samples.attempt, AttemptLines())
            lines.load(node, samples)
            self._last_seq[node_id] = samples.seq
            return True

    def add(self, node_id: NodeId, node: str, line: JournalLine) -> bool:
        """Take a line; return ``False`` if it is a duplicate."""
        with self._lock:
            if line.seq <= self.last_seq(node_id):
                return False
            self._last_seq[node_id] = line.seq
            self._attempts.setdefault(line.attempt, AttemptLines()).take(node, line.body)
            return True

    def snapshot(
        self, view: JobView, *, is_complete: bool, clock_ahead_s: float = 0.0
    ) -> JobHistory:
        """Return a snapshot of the attempt that ``view`` shows; O(ranks + nodes)."""
        with self._lock:
            attempt = self._attempts.get(view.attempt.number, AttemptLines())
            return JobHistory(
                view=view,
                ranks={rank: one.series(rank) for rank, one in sorted(attempt.ranks.items())},
                links={node: one.snapshot() for node, one in sorted(attempt.links.items())},
                is_complete=is_complete,
                clock_ahead_s=clock_ahead_s,
                earlier=[
                    [one.series(rank) for rank, one in sorted(lines.ranks.items()) if one.has_steps]
                    for number, lines in sorted(self._attempts.items())
                    if number < view.attempt.number
                ],
            )
