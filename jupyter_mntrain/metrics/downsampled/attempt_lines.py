"""Attempt lines: what a driver keeps of an attempt's journals, in bounded memory."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from jupyter_mntrain.metrics.downsampled.blocks import StepBlocks, row_of, unpacked
from jupyter_mntrain.metrics.downsampled.link_samples import LinkLines
from jupyter_mntrain.metrics.downsampled.prefix import Prefix
from jupyter_mntrain.metrics.downsampled.rank_series import RankSeries
from jupyter_mntrain.metrics.downsampled.samples import MOST_TRACES, NodeSamples, RankSamples
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.metrics import (
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
    Sample,
)

LEAST_RATE_S = 1.0
"""Shortest time over which a rate of progress is computed."""

ROOM_STEPS = 8192
"""Steps of all ranks together that stay single; each rank has at least :data:`LEAST_STEPS`."""

ROOM_BLOCKS = 65536
ROOM_LINKS = 65536
LEAST_STEPS, MOST_STEPS = 16, 1024
LEAST_BLOCKS, MOST_BLOCKS = 256, 8192


def most_blocks(ranks: int) -> int:
    """Return how many blocks to keep per rank; when there are more, four are joined into one."""
    return min(MOST_BLOCKS, max(LEAST_BLOCKS, ROOM_BLOCKS // max(1, ranks)))


def most_steps(ranks: int) -> int:
    """Return how many of a rank's newest steps stay single, at least."""
    return min(MOST_STEPS, max(LEAST_STEPS, ROOM_STEPS // max(1, ranks)))


@dataclass(slots=True)
class RankLines:
    """The samples of one rank, with older steps in blocks."""

    start: RankStart | None = None
    steps: list[RankStep] = field(default_factory=list)
    end: RankEnd | None = None
    progress: RankProgress | None = None
    begun: RankProgress | None = None
    """The first report of the current activity."""
    evaluations: list[RankEvaluation] = field(default_factory=list)
    texts: list[RankText] = field(default_factory=list)
    traces: tuple[RankTrace, ...] = ()
    blocks: StepBlocks = field(default_factory=StepBlocks)
    sent_bytes: dict[int, float] = field(default_factory=dict)
    received_bytes: dict[int, float] = field(default_factory=dict)
    """Bytes of the steps in blocks, by peer."""

    @property
    def has_steps(self) -> bool:
        return bool(self.steps or len(self.blocks))

    def take_progress(self, new: RankProgress) -> None:
        begun = self.begun
        if begun is None or begun.what != new.what or new.done < begun.done:
            begun = self.begun = new
        passed_s = new.time_s - begun.time_s
        if passed_s >= LEAST_RATE_S:
            new = msgspec.structs.replace(new, per_s=(new.done - begun.done) / passed_s)
        self.progress = new

    def take_step(self, step: RankStep, ranks: int) -> None:
        if self.steps:
            _share(self.steps[-1], step)
        self.steps.append(step)
        self.progress = None
        kept = most_steps(ranks)
        if len(self.steps) < 2 * kept + self.blocks.size:
            return
        # Whole blocks; what a snapshot has is not touched.
        size = self.blocks.size
        count = max(1, kept // size) * size
        old, self.steps = self.steps[:count], self.steps[count:]
        first = self.blocks.steps
        rows = [row_of(one, first + index) for index, one in enumerate(old)]
        self.blocks = self.blocks.extended(rows, most_blocks(ranks))
        for one in old:
            for peer, told in one.sent_bytes.items():
                self.sent_bytes[peer] = self.sent_bytes.get(peer, 0.0) + told
            for peer, told in one.received_bytes.items():
                self.received_bytes[peer] = self.received_bytes.get(peer, 0.0) + told

    def take(self, body: RankSample, ranks: int) -> None:
        """Take one journal line of the rank.

        Args:
            ranks: how many there are.
        """
        match body:
            case RankStart():
                self.start = body
            case RankStep():
                self.take_step(body, ranks)
            case RankEvaluation():
                self.evaluations.append(body)
                self.progress = None
            case RankText():
                self.texts.append(body)
            case RankProgress():
                self.take_progress(body)
            case RankEnd():
                self.end = body
            case RankTrace():
                self.traces = (*self.traces, body)[-MOST_TRACES:]
            case RankSaved() | RankGroup() | RankSettings():
                pass

    def load(self, samples: RankSamples) -> None:
        self.start, self.end, self.progress = samples.start, samples.end, samples.progress
        self.evaluations, self.texts = list(samples.evaluations), list(samples.texts)
        self.traces = samples.traces
        self.blocks, self.steps = unpacked(samples.blocks), list(samples.rest)
        first = self.blocks.steps
        self.sent_bytes = {peer: one * first for peer, one in samples.sent_bytes.items()}
        self.received_bytes = {peer: one * first for peer, one in samples.received_bytes.items()}

    def series(self, rank: Rank) -> RankSeries:
        """Return a snapshot."""
        return RankSeries(
            self.start,
            Prefix(self.steps),
            self.end,
            self.progress,
            Prefix(self.evaluations),
            Prefix(self.texts),
            self.blocks.snapshot(),
            dict(self.sent_bytes),
            dict(self.received_bytes),
            rank,
            self.traces,
        )


def _share(before: RankStep, step: RankStep) -> None:
    """Share the byte counts of two steps if they are equal: they are the largest part of a step."""
    for name in ("sent_bytes", "received_bytes"):
        known = getattr(before, name)
        if getattr(step, name) == known:
            msgspec.structs.force_setattr(step, name, known)


@dataclass(slots=True)
class AttemptLines:
    """The samples of all ranks and links of an attempt."""

    ranks: dict[Rank, RankLines] = field(default_factory=dict)
    links: dict[str, LinkLines] = field(default_factory=dict)

    def load(self, node: str, samples: NodeSamples) -> None:
        """Take a node's downsampled samples.

        Raises:
            ValueError: they are damaged.
        """
        loaded = {one.rank: RankLines() for one in samples.ranks}
        for one in samples.ranks:
            loaded[one.rank].load(one)
        if samples.link is not None:
            link = LinkLines()
            link.load(samples.links, samples.link)
            self.links[node] = link
        self.ranks |= loaded

    def take(self, node: str, body: Sample) -> None:
        """Take one line of a node's journal."""
        if isinstance(body, PartChange):
            return  # the live view has it sooner, from the agents' streams
        if isinstance(body, LinkSample):
            link = self.links.setdefault(node, LinkLines())
            link.take(body, max(2 * LEAST_BLOCKS, ROOM_LINKS // max(8, len(self.links))))
            return
        lines = self.ranks.setdefault(body.rank, RankLines())
        lines.take(body, len(self.ranks))
