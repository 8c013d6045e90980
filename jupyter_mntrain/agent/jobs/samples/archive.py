"""Archive: a job's samples thinned, beside its journal, so that no reader needs all lines."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from jupyter_mntrain.agent.jobs.samples.pyramid import Kept, Pyramid
from jupyter_mntrain.metrics.thinned.blocks import (
    FACTOR,
    LINK_RULES,
    WIDTH,
    Row,
    link_row,
    packed,
    row_of,
    single_steps,
)
from jupyter_mntrain.metrics.thinned.samples import (
    BLOCK,
    MOST_TEXTS,
    MOST_TRACES,
    Blocks,
    EarlierAttempt,
    RankSamples,
)
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.files import private_directory
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
)

MOST_EVALUATIONS = tunables.count("journal.evaluations")
NEWEST_LINKS = tunables.count("journal.newest_links")


EARLIER_BLOCKS = 64
"""Of each rank, of an attempt that is over."""

MOST_EARLIER = 64
"""Attempts that are kept: the newest of those that made steps."""


class KeptRank(Record, frozen=True):
    """Of a rank, what is not in the files."""

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
    """Of an attempt, what is not in the files; of all attempts, the line of their losses."""

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
    """One rank's series, and what it said beside its steps."""

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
        """What is kept of it once its attempt is over."""
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
        """Samples of the series that has most."""
        ranks = (one.steps.samples for one in self.ranks.values())
        return max(self.links.samples, *ranks, 0)

    def take(self, line: JournalLine, position: int) -> None:
        """Take the next line of the journal.

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
        """Write the files.

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
