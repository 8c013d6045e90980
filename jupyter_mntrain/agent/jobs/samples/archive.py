"""Archive: a job's samples at several resolutions, stored next to its journal."""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from jupyter_mntrain.agent.jobs.samples.journal import Journal
from jupyter_mntrain.metrics.downsampled.blocks import (
    AT,
    FACTOR,
    LINK_RULES,
    RULES,
    WIDTH,
    Row,
    Rule,
    as_bytes,
    from_bytes,
    joined,
    link_row,
    packed,
    row_of,
    single_steps,
)
from jupyter_mntrain.metrics.downsampled.samples import (
    BLOCK,
    MOST_TEXTS,
    MOST_TRACES,
    Blocks,
    EarlierAttempt,
    NodeSamples,
    RankSamples,
)
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.failure.system_errors import full_disk
from jupyter_mntrain.model.files import PRIVATE, private_directory
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.lifecycle.loss_line import Losses, LossLine
from jupyter_mntrain.model.records.metrics import (
    JournalLine,
    LinkSample,
    PartChange,
    RankEnd,
    RankEvaluation,
    RankGroup,
    RankProgress,
    RankSample,
    RankSaved,
    RankSettings,
    RankStart,
    RankStep,
    RankText,
    RankTrace,
    journal_decoder,
)

# Pyramid: one series in files of blocks of 4, 16, 64, … samples, appended as they fill.


MOST_BLOCKS = 32768
"""Blocks of steps in each file of downsampled samples: 4 steps each in the first file, 16 in the
second."""
FLOAT_BYTES = 8


class Kept(Record, frozen=True):
    """State of a pyramid that is not in its files, and how many blocks of these are valid.

    Args:
        samples: that it has taken.
        blocks: in each file, finest first.
        pending: rows that wait for their block to be whole; single samples first.
    """

    samples: int = 0
    blocks: tuple[int, ...] = ()
    pending: tuple[tuple[Row, ...], ...] = ()


class Pyramid:
    """The files ``name.1``, ``name.2``, … with blocks of 4, 16, … samples.

    A file holds the first :data:`MOST_BLOCKS` blocks, so that a series of any length needs a few
    megabytes more for each factor of 4. Nothing is written before :meth:`save`.

    Raises:
        ValueError: the files do not have what ``kept`` says.
    """

    def __init__(self, base: Path, kept: Kept, rules: Sequence[Rule] = RULES) -> None:
        self._base = base
        self._rules = rules
        self._row_bytes = FLOAT_BYTES * len(rules)
        self.samples = kept.samples
        self._saved = list(kept.blocks)
        self._unsaved: list[array[float]] = [array("d") for _ in kept.blocks]
        self._pending = [list(rows) for rows in kept.pending] or [[]]
        for level, blocks in enumerate(kept.blocks):
            path = self._path(level)
            if blocks and (not path.exists() or path.stat().st_size < blocks * self._row_bytes):
                raise ValueError(f"{path} is too short")

    def add(self, row: Row) -> None:
        """Add a sample."""
        self.samples += 1
        for level in range(len(self._pending) + 1):
            if level == len(self._pending):
                self._pending.append([])
            pending = self._pending[level]
            pending.append(row)
            if len(pending) < FACTOR:
                return
            row = joined(pending, self._rules)
            pending.clear()
            self._store(level, row)

    def _store(self, level: int, row: Row) -> None:
        if level == len(self._saved):
            self._saved.append(0)
            self._unsaved.append(array("d"))
        if self.blocks(level) < MOST_BLOCKS:
            self._unsaved[level].extend(row)

    def levels(self) -> range:
        """Return the levels, the finest file first."""
        return range(len(self._saved))

    @staticmethod
    def size(level: int) -> int:
        """Return the number of samples in each block of a file."""
        return int(FACTOR ** (level + 1))

    def blocks(self, level: int) -> int:
        """Return the number of blocks in a file."""
        return self._saved[level] + len(self._unsaved[level]) // len(self._rules)

    def is_full(self, level: int) -> bool:
        """Return whether a file still has a block for all samples that fill one."""
        return self.blocks(level) >= self.samples // self.size(level)

    def read(self, level: int, begin: int, end: int) -> bytes:
        """Read blocks of a file, encoded as in answers.

        Raises:
            OSError: it cannot be read.
        """
        saved, width = self._saved[level], len(self._rules)
        unsaved = self._unsaved[level][max(0, begin - saved) * width : max(0, end - saved) * width]
        content = b""
        if begin < saved:
            with self._path(level).open("rb") as file:
                file.seek(begin * self._row_bytes)
                content = file.read((min(end, saved) - begin) * self._row_bytes)
        return content + as_bytes(unsaved)

    def row(self, level: int, index: int) -> Row:
        """Return a single block of a file."""
        return tuple(from_bytes(self.read(level, index, index + 1)))

    def rows(self, level: int, begin: int, end: int) -> list[Row]:
        """Return the blocks of a file as rows."""
        width = len(self._rules)
        data = from_bytes(self.read(level, begin, end)) if end > begin else array("d")
        return [tuple(data[at : at + width]) for at in range(0, len(data), width)]

    def remainder(self, level: int) -> list[Row]:
        """Return the rows that wait to fill a file's next block, the coarsest first."""
        return [row for rows in reversed(self._pending[: level + 1]) for row in rows]

    def rest(self, level: int) -> list[tuple[Row, int]]:
        """Return what is not yet in a block of a file, oldest first, each with the number of its
        samples. Level -1 returns single samples.
        """
        sizes = [FACTOR**one for one in range(len(self._pending))]
        told = [
            (row, size)
            for size, rows in reversed(list(zip(sizes, self._pending, strict=True))[: level + 1])
            for row in rows
        ]
        return told if level >= 0 else [(row, 1) for row in self._pending[0]]

    def save(self) -> Kept:
        """Append new blocks to the files.

        Raises:
            OSError: the disk is full; what was not written is tried again.
        """
        for level, unsaved in enumerate(self._unsaved):
            if not unsaved:
                continue
            descriptor = os.open(self._path(level), os.O_WRONLY | os.O_CREAT, PRIVATE)
            try:
                content = as_bytes(unsaved)
                done = os.pwrite(descriptor, content, self._saved[level] * self._row_bytes)
                if done < len(content):
                    raise full_disk(self._path(level))
            finally:
                os.close(descriptor)
            self._saved[level] += len(unsaved) // len(self._rules)
            self._unsaved[level] = array("d")
        return Kept(
            samples=self.samples,
            blocks=tuple(self._saved),
            pending=tuple(tuple(rows) for rows in self._pending),
        )

    def remove(self) -> None:
        """Delete the files."""
        for level in self.levels():
            self._path(level).unlink(missing_ok=True)

    def _path(self, level: int) -> Path:
        return self._base.with_name(f"{self._base.name}.{level + 1}")


# Archive: a job's samples downsampled, next to its journal, so that no reader needs all lines.


MOST_EVALUATIONS = 4096
"""Evaluations of a rank that are kept with them; of more, every second older one."""
NEWEST_LINKS = 64
"""Samples of an interface, one per second, that are answered one by one: figures are of the
newest."""


EARLIER_BLOCKS = 64
"""Of each rank, of an attempt that is over."""

MOST_EARLIER = 64
"""Attempts that are kept: the newest of those that made steps."""


class KeptRank(Record, frozen=True):
    """State of a rank that is not in the files."""

    kept: Kept = Kept()
    start: RankStart | None = None
    end: RankEnd | None = None
    progress: RankProgress | None = None
    evaluations: tuple[RankEvaluation, ...] = ()
    texts: tuple[RankText, ...] = ()
    traces: tuple[RankTrace, ...] = ()
    sent_bytes: dict[int, float] = {}
    received_bytes: dict[int, float] = {}


class KeptArchive(Record, frozen=True):
    """State of an attempt that is not in the files, and the loss curve of all attempts."""

    attempt: int = 0
    columns: tuple[str, ...] = ()
    ranks: dict[int, KeptRank] = {}
    links: Kept = Kept()
    newest_links: tuple[Row, ...] = ()
    link: LinkSample | None = None
    loss_line: LossLine | None = None
    earlier: tuple[EarlierAttempt, ...] = ()


@dataclass(slots=True)
class RankArchive:
    """One rank's series, and what else it reported."""

    steps: Pyramid
    start: RankStart | None = None
    end: RankEnd | None = None
    progress: RankProgress | None = None
    evaluations: list[RankEvaluation] = field(default_factory=list)
    texts: list[RankText] = field(default_factory=list)
    traces: list[RankTrace] = field(default_factory=list)
    sent_bytes: dict[int, float] = field(default_factory=dict)
    received_bytes: dict[int, float] = field(default_factory=dict)
    """Of all steps, by peer."""

    def take(self, body: RankSample, position: int) -> None:
        match body:
            case RankStep():
                self._take_step(body, position)
            case RankStart():
                self.start = body
            case RankEnd():
                self.end = body
            case RankProgress():
                self.progress = body
            case RankEvaluation():
                self._take_evaluation(body)
            case RankText():
                self._take_text(body)
            case RankTrace():
                self.traces = [*self.traces, body][-MOST_TRACES:]
            case RankSaved() | RankGroup() | RankSettings():
                pass  # the job's record has it

    def _take_step(self, step: RankStep, position: int) -> None:
        self.steps.add(row_of(step, self.steps.samples, position))
        self.progress = None
        for totals, told in (
            (self.sent_bytes, step.sent_bytes),
            (self.received_bytes, step.received_bytes),
        ):
            for peer, size in told.items():
                totals[peer] = totals.get(peer, 0.0) + size

    def _take_evaluation(self, one: RankEvaluation) -> None:
        self.progress = None
        self.evaluations.append(one)
        if len(self.evaluations) > MOST_EVALUATIONS:
            del self.evaluations[1:-1:2]

    def _take_text(self, one: RankText) -> None:
        self.texts.append(one)
        del self.texts[:-MOST_TEXTS]

    def earlier(self, rank: Rank) -> RankSamples:
        """Return what is kept of the rank once its attempt is over."""
        steps = self.steps
        levels = (one for one in steps.levels() if steps.blocks(one) <= EARLIER_BLOCKS)
        level = next(levels, None)
        rows = [] if level is None else steps.rows(level, 0, steps.blocks(level))
        rest: list[RankStep] = []
        for row, count in steps.rest(-1 if level is None else level):
            rest += single_steps(row, count, rank)
        return RankSamples(
            rank=rank,
            steps=steps.samples,
            start=self.start and msgspec.structs.replace(self.start, data=None),
            evaluations=tuple(self.evaluations),
            blocks=Blocks(
                size=1 if level is None else steps.size(level), data=packed(rows), width=WIDTH
            ),
            rest=tuple(rest),
        )

    def save(self) -> KeptRank:
        return KeptRank(
            kept=self.steps.save(),
            start=self.start,
            end=self.end,
            progress=self.progress,
            evaluations=tuple(self.evaluations),
            texts=tuple(self.texts),
            traces=tuple(self.traces),
            sent_bytes=dict(self.sent_bytes),
            received_bytes=dict(self.received_bytes),
        )


class Archive:
    """The newest attempt's samples in a directory of files, which need not exist yet.

    Raises:
        ValueError: the files do not have what ``kept`` says.
    """

    def __init__(self, directory: Path, kept: KeptArchive | None = None) -> None:
        self._directory = directory
        kept = kept or KeptArchive(columns=BLOCK)
        if kept.columns != BLOCK:
            raise ValueError("an agent of another version wrote these files")
        self.attempt = kept.attempt
        self.ranks = {Rank(rank): self._rank(rank, one) for rank, one in kept.ranks.items()}
        self.links = self._link_pyramid(kept.links)
        self.newest_links = list(kept.newest_links)
        self.link = kept.link
        self.earlier = kept.earlier
        self.losses = Losses(kept.loss_line)
        """The newest, with the measurements that hold now."""

    @property
    def longest(self) -> int:
        """The number of samples in the longest series."""
        ranks = (one.steps.samples for one in self.ranks.values())
        return max(self.links.samples, *ranks, 0)

    def take(self, line: JournalLine, position: int) -> None:
        """Add the next line of the journal.

        Args:
            position: offset after it.
        """
        if line.attempt > self.attempt:
            self._begin(line.attempt)
        body = line.body
        if line.attempt < self.attempt or isinstance(body, PartChange):
            return
        if isinstance(body, LinkSample):
            self._take_link(body)
            return
        if (known := self.ranks.get(body.rank)) is None:
            known = self.ranks[body.rank] = self._rank(body.rank, KeptRank())
        known.take(body, position)
        if isinstance(body, RankStep) and body.loss is not None:
            self.losses.take(body.rank, body.step, float(body.loss))
        elif isinstance(body, RankStart):
            self.losses.plan(body.total_steps)
        elif isinstance(body, RankSettings):
            self.losses.plan(body.change.total_steps)

    def save(self) -> KeptArchive:
        """Write new blocks to the files, and return the state that is not in them.

        Raises:
            OSError: the disk is full; what was not written is tried again.
        """
        private_directory(self._directory)
        return KeptArchive(
            attempt=self.attempt,
            columns=BLOCK,
            ranks={rank: one.save() for rank, one in self.ranks.items()},
            links=self.links.save(),
            newest_links=tuple(self.newest_links),
            link=self.link,
            loss_line=self.losses.line,
            earlier=self.earlier,
        )

    def _take_link(self, sample: LinkSample) -> None:
        self.newest_links.append(link_row(sample))
        # A few more: blocks end where the finest file's do.
        del self.newest_links[: -NEWEST_LINKS - FACTOR]
        self.links.add(self.newest_links[-1])
        before = self.link
        if before is None:
            self.link = sample
            return
        self.link = LinkSample(
            time_s=sample.time_s,
            interface=sample.interface,
            interval_s=sample.interval_s,
            sent_bytes=sample.sent_bytes,
            received_bytes=sample.received_bytes,
            given=sample.given or before.given,
            links=before.links if sample.links is None else sample.links,
        )

    def _begin(self, attempt: int) -> None:
        self.losses.begin_attempt()
        told = tuple(one.earlier(rank) for rank, one in self.ranks.items() if one.steps.samples)
        if told:
            self.earlier = (*self.earlier, EarlierAttempt(self.attempt, told))[-MOST_EARLIER:]
        for one in self.ranks.values():
            one.steps.remove()
        self.links.remove()
        self.attempt, self.ranks, self.link = attempt, {}, None
        self.links, self.newest_links = self._link_pyramid(Kept()), []

    def _rank(self, rank: int, kept: KeptRank) -> RankArchive:
        return RankArchive(
            Pyramid(self._directory / f"rank-{rank}", kept.kept),
            start=kept.start,
            end=kept.end,
            progress=kept.progress,
            evaluations=list(kept.evaluations),
            texts=list(kept.texts),
            traces=list(kept.traces),
            sent_bytes=dict(kept.sent_bytes),
            received_bytes=dict(kept.received_bytes),
        )

    def _link_pyramid(self, kept: Kept) -> Pyramid:
        return Pyramid(self._directory / "links", kept, LINK_RULES)


# Samples answer: a limited number of blocks of all steps or of a range, or single steps.


STEPS_READ = 16384
"""Steps that are read one by one for an answer, at most."""
BYTES_READ = 256 * 2**20
"""Largest part of a journal that is read for one answer."""

# Steps at the end of a whole answer that are told one by one: medians are taken of them.
NEWEST = 200
"""Steps at the end of a whole answer that are sent individually: figures are computed from them."""

NEAR_BYTES = 16 << 20
"""Ranks whose steps begin this close to each other are read in one go."""

Axis = Literal["step", "time_s"]


class Range(NamedTuple):
    """A range of steps, ends included, by step number or Unix time."""

    begin: float
    end: float
    axis: Axis = "step"


@dataclass
class _Wanted:
    """Steps of one rank that have to be read from the journal."""

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
    """Answer to a request for samples, as of its creation. :meth:`read` may run in a thread.

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
        """Read the steps that are answered individually.

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
                told.append(msgspec.structs.replace(one, blocks=_downsampled(steps, self._points)))
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
        """Return blocks of the range; none where its steps can be read individually."""
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
        """Read the journal from the first position until every rank has the steps it needs."""
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
    """Return whether a file covers the whole range."""
    if steps.is_full(level):
        return True
    return steps.row(level, steps.blocks(level) - 1)[AT[range_.axis]] >= range_.end


def _within(steps: Pyramid, level: int, range_: Range) -> tuple[int, int, int, int]:
    """Find the blocks of a file that overlap the range: the first, the one after the last, and the
    offsets in the journal at which their lines begin and end (0 = the journal's end).
    """
    count, axis, position = steps.blocks(level), AT[range_.axis], AT["position"]

    def last_of(index: int) -> float:
        return steps.row(level, index)[axis]

    begin = bisect_left(range(count), range_.begin, key=last_of)
    end = min(count, bisect_left(range(count), range_.end, lo=begin, key=last_of) + 1)
    before = int(steps.row(level, begin - 1)[position]) if begin else 0
    until = int(steps.row(level, end - 1)[position]) if end < count else 0
    return begin, max(begin, end), before, until


def _downsampled(steps: list[RankStep], points: int) -> Blocks:
    size = -(-len(steps) // points)
    rows = [row_of(step, index + NEWEST) for index, step in enumerate(steps)]
    blocks = (joined(rows[begin : begin + size]) for begin in range(0, len(rows), size))
    return Blocks(size=size, data=packed(blocks), width=WIDTH)


def _whole_links(archive: Archive, points: int) -> bytes:
    """Return the link samples: coarse blocks, then finer ones, then the newest samples."""
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
