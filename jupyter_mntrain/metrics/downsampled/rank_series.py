"""Rank series: what one rank wrote, older steps in blocks, and how to align several ranks."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from jupyter_mntrain.metrics.downsampled.blocks import Row, StepBlocks, joined, mean_step, row_of
from jupyter_mntrain.metrics.downsampled.samples import BLOCK
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.metrics import (
    RankEnd,
    RankEvaluation,
    RankProgress,
    RankStart,
    RankStep,
    RankText,
    RankTrace,
)

STEP = BLOCK.index("step")
TIME = attrgetter("time_s")
LEAST_REACH = 8


@dataclass(frozen=True, slots=True)
class RankSeries:
    """What one rank wrote: its start, every step in order, and how it ended.

    ``end`` stays ``None`` for a rank that was killed. ``progress`` is the newest it said of
    anything that is not a step, and ``None`` again once it has made a step or evaluated since.

    Args:
        steps: the newest ones; ``blocks`` stand for those before.
        sent_bytes: per step, by peer, of all steps; ``received_bytes`` likewise.
        traces: of the newest recorded steps, oldest first.
    """

    start: RankStart | None
    steps: Sequence[RankStep]
    end: RankEnd | None
    progress: RankProgress | None = None
    evaluations: Sequence[RankEvaluation] = ()
    texts: Sequence[RankText] = ()
    blocks: StepBlocks = field(default_factory=StepBlocks)
    sent_bytes: Mapping[int, float] = field(default_factory=dict)
    received_bytes: Mapping[int, float] = field(default_factory=dict)
    rank: Rank | None = None
    traces: Sequence[RankTrace] = ()

    @property
    def is_writing(self) -> bool:
        """Whether the rank has reported its start or a step."""
        return bool(self.start or self.count)

    @property
    def first(self) -> int:
        """The number of steps that are in blocks."""
        return self.blocks.steps

    @property
    def count(self) -> int:
        """The number of steps that the rank has made."""
        return self.first + len(self.steps)

    @property
    def last_step(self) -> int | None:
        """The number of the last step that the rank has made."""
        if self.steps:
            return self.steps[-1].step
        return int(self.blocks[-1][STEP]) if len(self.blocks) else None

    def step(self, index: int) -> RankStep:
        """Return a step by its index from the first one; it must not be in a block."""
        return self.steps[index - self.first]

    def row(self, begin: int, end: int) -> Row:
        """Return the block of a range of steps; blocks that it touches count as a whole."""
        size, first = self.blocks.size, self.first
        rows = [self.blocks[index] for index in range(begin // size, -(-min(end, first) // size))]
        rows += [row_of(self.step(index), index) for index in range(max(begin, first), end)]
        return rows[0] if len(rows) == 1 else joined(rows)

    def mean(self, row: Row) -> RankStep:
        """Return a block of its steps as one average step."""
        return mean_step(row, self.rank or Rank(0), self.sent_bytes, self.received_bytes)

    def step_before(self, time_s: float) -> RankStep:
        """Return the last step that ended before a time; the first one if none did."""
        blocks, steps = self.blocks, self.steps
        if len(blocks) and (not steps or time_s < steps[0].time_s):
            index = bisect_right(range(len(blocks)), time_s, key=blocks.time_s)
            return self.mean(blocks[max(0, index - 1)])
        newest = self._newest_since(time_s)
        return newest[max(0, bisect_right(newest, time_s, key=TIME) - 1)]

    def within(self, begin_s: float, end_s: float) -> Sequence[RankStep]:
        """Return the single steps that ended between two times."""
        newest = self._newest_since(begin_s)
        begin, end = (bisect_right(newest, time_s, key=TIME) for time_s in (begin_s, end_s))
        return newest[begin:end]

    def _newest_since(self, time_s: float) -> Sequence[RankStep]:
        """Return the newest steps, with all that ended since a time among them.

        Callers ask for recent times: searching from the end stays cheap however long a job runs.
        """
        begin, reach = len(self.steps), LEAST_REACH
        while begin > 0 and (begin == len(self.steps) or self.steps[begin].time_s >= time_s):
            begin, reach = max(0, begin - reach), 2 * reach
        return self.steps[begin:]


class Together(NamedTuple):
    """Steps ``begin`` to ``end`` (exclusive) of several ranks, one block per rank."""

    begin: int
    end: int
    rows: list[Row]


def together(ranks: Sequence[RankSeries], begin: int) -> Iterator[Together]:
    """Yield the blocks of several ranks aligned, from a step on, until one rank has no more.

    They are as long as the longest of any rank; after them, every rank has single steps.
    """
    first = max((one.first for one in ranks), default=0)
    size = max((one.blocks.size for one in ranks), default=1)
    while begin < first:
        end = min(begin - begin % size + size, first)
        if any(one.count < end for one in ranks):
            return
        yield Together(begin, end, [one.row(begin, end) for one in ranks])
        begin = end
