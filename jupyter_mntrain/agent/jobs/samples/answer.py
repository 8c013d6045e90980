"""Samples answer: of all steps, or of a range, at most so many blocks; single steps where asked."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import msgspec

from jupyter_mntrain.agent.jobs.samples.archive import NEWEST_LINKS, Archive, RankArchive
from jupyter_mntrain.agent.jobs.samples.journal import Journal
from jupyter_mntrain.agent.jobs.samples.pyramid import Pyramid
from jupyter_mntrain.metrics.thinned.blocks import (
    AT,
    WIDTH,
    Row,
    from_bytes,
    joined,
    packed,
    row_of,
)
from jupyter_mntrain.metrics.thinned.samples import BLOCK, Blocks, NodeSamples, RankSamples
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.metrics import RankStep, journal_decoder

STEPS_READ = tunables.count("journal.steps_read")
BYTES_READ = tunables.size("journal.answer_bytes")

NEWEST = tunables.count("journal.newest_steps")
"""So many steps at the end of a whole answer are told one by one: figures are taken from them."""

NEAR_BYTES = 16 << 20
"""Ranks whose steps begin this close to each other are read in one go."""

Axis = Literal["step", "time_s"]


class Range(NamedTuple):
    """Steps from ``begin`` to ``end``, both included, by their numbers or their Unix times."""

    begin: float
    end: float
    axis: Axis = "step"


@dataclass
class _Wanted:
    """Steps of one rank that are read from the journal."""

    rank: Rank
    position: int
    """No line of them is before."""
    count: int
    range: Range | None = None
    found: list[RankStep] = field(default_factory=list)
    is_over: bool = False

    def take(self, step: RankStep) -> None:
        where = None if self.range is None else float(getattr(step, self.range.axis))
        if self.range is not None and where is not None:
            if where > self.range.end:
                self.is_over = True
                return
            if where < self.range.begin:
                return
        self.found.append(step)
        self.is_over = len(self.found) >= self.count


class SamplesAnswer:
    """What is answered, as it is when this is made; :meth:`read` may run in a thread.

    Args:
        ranks: only these.
        points: blocks of each, at most.
        range_: ``None`` = all steps, the newest one by one.

    Raises:
        OSError: a file cannot be read.
    """

    def __init__(
        self,
        archive: Archive,
        journal: Journal,
        *,
        ranks: Iterable[Rank],
        points: int,
        range_: Range | None = None,
    ) -> None:
        self._journal, self._points, self._range = journal, points, range_
        self._end, self._seq, self._attempt = journal.size, journal.last_seq, archive.attempt
        self._links = Blocks() if range_ else Blocks(data=_whole_links(archive, points))
        self._link = archive.link
        self._earlier = () if range_ else archive.earlier
        self._wanted: dict[Rank, _Wanted] = {}
        self._ranks: dict[Rank, RankSamples] = {}
        for rank in sorted(set(ranks) & set(archive.ranks)):
            known = archive.ranks[rank]
            blocks = self._zoom(rank, known) if range_ else self._whole(rank, known)
            self._ranks[rank] = _told(rank, known, blocks, with_traces=range_ is None)

    def read(self) -> NodeSamples:
        """Read the steps that are told one by one.

        Raises:
            OSError: the journal cannot be read.
        """
        for together in _near(self._wanted.values()):
            self._scan(together)
        told = []
        for rank, one in self._ranks.items():
            wanted = self._wanted.get(rank)
            steps = wanted.found if wanted else []
            if self._range is not None and len(steps) > self._points:
                told.append(msgspec.structs.replace(one, blocks=_thinned(steps, self._points)))
            else:
                told.append(msgspec.structs.replace(one, rest=tuple(steps)))
        return NodeSamples(
            attempt=self._attempt,
            seq=self._seq,
            ranks=tuple(told),
            links=self._links,
            link=self._link,
            earlier=self._earlier,
        )

    def _whole(self, rank: Rank, known: RankArchive) -> Blocks:
        steps, total = known.steps, known.steps.samples
        level = next(
            (one for one in steps.levels() if total <= self._points * steps.size(one)), None
        )
        if total <= self._points or level is None:
            self._wanted[rank] = _Wanted(rank, 0, total)
            return Blocks()
        size = steps.size(level)
        count = min(max(0, total - NEWEST) // size, steps.blocks(level))
        data = steps.read(level, 0, count)
        position = int(from_bytes(data)[-len(BLOCK) + AT["position"]]) if count else 0
        self._wanted[rank] = _Wanted(rank, position, total - count * size)
        return Blocks(size=size, data=data, width=WIDTH)

    def _zoom(self, rank: Rank, known: RankArchive) -> Blocks:
        """Blocks of the range, or none where its steps can be read one by one."""
        assert self._range is not None  # noqa: S101 - that is when this is called
        steps = known.steps
        found = [_within(steps, level, self._range) for level in steps.levels()]
        if not found:
            self._wanted[rank] = _Wanted(rank, 0, STEPS_READ, self._range)
            return Blocks()
        level = next(one for one in steps.levels() if _covers(steps, one, self._range))
        begin, end, position, until = found[level]
        is_short = (end - begin + 1) * steps.size(level) <= STEPS_READ
        if is_short and self._journal.has(position, until or self._end):
            self._wanted[rank] = _Wanted(rank, position, STEPS_READ, self._range)
            return Blocks()
        for one in range(level, len(found)):
            begin, end, *_ = found[one]
            if end - begin < self._points or one == len(found) - 1:
                rest = steps.remainder(one) if end == steps.blocks(one) else []
                rows = [*steps.rows(one, begin, end), *rest][: self._points]
                size = steps.size(one)
                return Blocks(size=size, begin=begin * size, data=packed(rows), width=WIDTH)
        raise AssertionError("there is a coarsest one")

    def _scan(self, wanted: list[_Wanted]) -> None:
        """Read from the first position on, until every rank has what it lacks."""
        open_ = {one.rank: one for one in wanted if one.count > 0}
        begin = min(one.position for one in wanted)
        marker = b'"rank":%d,' % wanted[0].rank if len(wanted) == 1 else b""
        for block, after in self._journal.read(begin):
            position = after - len(block)
            if not open_ or position >= self._end or position - begin > BYTES_READ:
                return
            for line in block.splitlines(keepends=True):
                position += len(line)
                if position > self._end:
                    break
                if marker in line and (step := self._step(line)) is not None:
                    one = open_.get(step.rank)
                    if one is not None and position > one.position:
                        one.take(step)
                        if one.is_over:
                            del open_[step.rank]

    def _step(self, line: bytes) -> RankStep | None:
        try:
            entry = journal_decoder.decode(line)
        except msgspec.MsgspecError:
            return None
        body = entry.body
        return body if entry.attempt == self._attempt and isinstance(body, RankStep) else None


def _told(rank: Rank, known: RankArchive, blocks: Blocks, *, with_traces: bool) -> RankSamples:
    total = max(1, known.steps.samples)
    return RankSamples(
        rank=rank,
        steps=known.steps.samples,
        start=known.start,
        end=known.end,
        progress=known.progress,
        evaluations=tuple(known.evaluations),
        texts=tuple(known.texts),
        traces=tuple(known.traces) if with_traces else (),
        blocks=blocks,
        sent_bytes=_per_step(known.sent_bytes, total),
        received_bytes=_per_step(known.received_bytes, total),
    )


def _per_step(totals: Mapping[int, float], steps: int) -> dict[int, float]:
    return {peer: total / steps for peer, total in totals.items()}


def _near(wanted: Iterable[_Wanted]) -> Iterator[list[_Wanted]]:
    together: list[_Wanted] = []
    for one in sorted(wanted, key=lambda one: one.position):
        if together and one.position - together[0].position > NEAR_BYTES:
            yield together
            together = []
        together.append(one)
    if together:
        yield together


def _covers(steps: Pyramid, level: int, range_: Range) -> bool:
    """Whether a file has all of the range."""
    if steps.is_full(level):
        return True
    return steps.row(level, steps.blocks(level) - 1)[AT[range_.axis]] >= range_.end


def _within(steps: Pyramid, level: int, range_: Range) -> tuple[int, int, int, int]:
    """Blocks of a file that the range touches: the first, the one after the last, the offset of
    their first line in the journal, and that after their last one (0 = the journal's end).
    """
    count, axis, position = steps.blocks(level), AT[range_.axis], AT["position"]

    def last_of(index: int) -> float:
        return steps.row(level, index)[axis]

    begin = bisect_left(range(count), range_.begin, key=last_of)
    end = min(count, bisect_left(range(count), range_.end, lo=begin, key=last_of) + 1)
    before = int(steps.row(level, begin - 1)[position]) if begin else 0
    until = int(steps.row(level, end - 1)[position]) if end < count else 0
    return begin, max(begin, end), before, until


def _thinned(steps: list[RankStep], points: int) -> Blocks:
    size = -(-len(steps) // points)
    rows = [row_of(step, index + NEWEST) for index, step in enumerate(steps)]
    blocks = (joined(rows[begin : begin + size]) for begin in range(0, len(rows), size))
    return Blocks(size=size, data=packed(blocks), width=WIDTH)


def _whole_links(archive: Archive, points: int) -> bytes:
    """Coarse blocks, then finer ones, then the newest samples one by one."""
    links, newest = archive.links, archive.newest_links
    total, rows, taken = links.samples, list[Row](), 0
    levels = links.levels()
    coarsest = next((one for one in levels if total <= points * links.size(one)), len(levels) - 1)
    if levels and not links.is_full(0):
        rows = links.rows(coarsest, 0, links.blocks(coarsest))
        return packed([*rows, *links.remainder(coarsest)])
    for one in reversed(levels[: coarsest + 1]):
        end = max(0, total - NEWEST_LINKS) // links.size(one)
        rows += links.rows(one, taken // links.size(one), end)
        taken = max(taken, end * links.size(one))
    return packed([*rows, *newest[max(0, taken - total + len(newest)) :]])
