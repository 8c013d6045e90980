"""Job history: all samples of a job, merged from its nodes' journals. Readable from any thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar, overload

import msgspec

from jupyter_mntrain.model.ids import NodeId, Rank
from jupyter_mntrain.model.records.job import JobView
from jupyter_mntrain.model.records.metrics import (
    JournalLine,
    LinkSample,
    PartChange,
    RankEnd,
    RankEvaluation,
    RankProgress,
    RankStart,
    RankStep,
    RankText,
)

T = TypeVar("T")


class Prefix(Sequence[T]):
    """What a list that only ever grows held at one moment: a snapshot that copies nothing."""

    __slots__ = ("_items", "_length")

    def __init__(self, items: list[T]) -> None:
        self._items = items
        self._length = len(items)

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self._items[i] for i in range(self._length)[index]]
        return self._items[range(self._length)[index]]

    def __iter__(self) -> Iterator[T]:
        return islice(self._items, self._length)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # equal by content, like a list

    def __repr__(self) -> str:
        return f"Prefix({list(self)!r})"


@dataclass(frozen=True, slots=True)
class RankSeries:
    """What one rank wrote: who it is, every step in order, how it ended.

    ``end`` stays ``None`` for a rank that was killed. ``progress`` is the newest it said of
    anything that is not a step, and ``None`` again once it has made a step or evaluated since.
    """

    start: RankStart | None
    steps: Sequence[RankStep]
    end: RankEnd | None
    progress: RankProgress | None = None
    evaluations: Sequence[RankEvaluation] = ()
    texts: Sequence[RankText] = ()

    @property
    def is_writing(self) -> bool:
        """Whether it has said who it is, or made a step."""
        return bool(self.start or self.steps)


@dataclass(frozen=True, slots=True)
class JobHistory:
    """A consistent snapshot of the newest attempt of a job.

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

    @property
    def writing(self) -> list[RankSeries]:
        """Ranks that have said who they are, or made a step."""
        return [one for one in self.ranks.values() if one.is_writing]

    @property
    def is_whole(self) -> bool:
        """Whether all ranks have written something."""
        return len(self.writing) == self.view.attempt.world_size

    @property
    def evaluations(self) -> Sequence[RankEvaluation]:
        """Evaluations as the lowest rank reports them that has any; all ranks report the same."""
        return next((one.evaluations for one in self.ranks.values() if one.evaluations), ())

    @property
    def texts(self) -> Sequence[RankText]:
        """What the model wrote, oldest first."""
        return next((one.texts for one in self.ranks.values() if one.texts), ())


LEAST_RATE_S = 1.0
"""Progress in less time says nothing about its rate."""


@dataclass(slots=True)
class _RankLines:
    start: RankStart | None = None
    steps: list[RankStep] = field(default_factory=list)
    end: RankEnd | None = None
    progress: RankProgress | None = None
    begun: RankProgress | None = None
    """The first report of what it does now."""
    evaluations: list[RankEvaluation] = field(default_factory=list)
    texts: list[RankText] = field(default_factory=list)

    def take_progress(self, new: RankProgress) -> None:
        begun = self.begun
        if begun is None or begun.what != new.what or new.done < begun.done:
            begun = self.begun = new
        passed_s = new.time_s - begun.time_s
        if passed_s >= LEAST_RATE_S:
            new = msgspec.structs.replace(new, per_s=(new.done - begun.done) / passed_s)
        self.progress = new


@dataclass(slots=True)
class _AttemptLines:
    ranks: dict[Rank, _RankLines] = field(default_factory=dict)
    links: dict[str, list[LinkSample]] = field(default_factory=dict)


class HistoryBuilder:
    """Takes journal lines as they come, from several nodes; a line seen before changes nothing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._attempts: dict[int, _AttemptLines] = {}
        self._last_seq: dict[NodeId, int] = {}

    def last_seq(self, node_id: NodeId) -> int:
        """Number of the last line taken from a node: where its journal is resumed."""
        return self._last_seq.get(node_id, 0)

    def add(self, node_id: NodeId, node: str, line: JournalLine) -> bool:
        """Take a line; ``False`` when it had been taken before."""
        with self._lock:
            if line.seq <= self.last_seq(node_id):
                return False
            self._last_seq[node_id] = line.seq
            self._store(self._attempts.setdefault(line.attempt, _AttemptLines()), node, line)
            return True

    @staticmethod
    def _store(attempt: _AttemptLines, node: str, line: JournalLine) -> None:
        body = line.body
        if isinstance(body, PartChange):
            return  # the live view has it sooner, from the agents' streams
        if isinstance(body, LinkSample):
            attempt.links.setdefault(node, []).append(body)
            return
        series = attempt.ranks.setdefault(body.rank, _RankLines())
        match body:
            case RankStart():
                series.start = body
            case RankStep():
                series.steps.append(body)
                series.progress = None
            case RankEvaluation():
                series.evaluations.append(body)
                series.progress = None
            case RankText():
                series.texts.append(body)
            case RankProgress():
                series.take_progress(body)
            case RankEnd():
                series.end = body

    def snapshot(self, view: JobView, *, is_complete: bool) -> JobHistory:
        """Everything taken so far of the attempt that ``view`` shows; O(ranks + nodes)."""
        with self._lock:
            attempt = self._attempts.get(view.attempt.number, _AttemptLines())
            return JobHistory(
                view=view,
                ranks={
                    rank: RankSeries(
                        series.start,
                        Prefix(series.steps),
                        series.end,
                        series.progress,
                        Prefix(series.evaluations),
                        Prefix(series.texts),
                    )
                    for rank, series in sorted(attempt.ranks.items())
                },
                links={node: Prefix(samples) for node, samples in sorted(attempt.links.items())},
                is_complete=is_complete,
            )
