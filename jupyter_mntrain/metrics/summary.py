"""Job summary: the figures of a job that every front end shows. Records only.

Rates are counts over wall time: of a running job those of the recent steps, see
:mod:`jupyter_mntrain.metrics.recent`, of an ended one those of the whole job. ``None`` means not
known, and ``missing`` says why; shares and utilizations are 0..1. What each figure is,
``figures.toml`` next to this file says, and
:func:`jupyter_mntrain.metrics.definitions.meaning_of`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.failure.verdict import Verdict
from jupyter_mntrain.model.ids import JobId, Rank
from jupyter_mntrain.model.records.job import JobState, Restart
from jupyter_mntrain.model.records.metrics import ComparedTransfer, RankProgress
from jupyter_mntrain.model.records.node import Capacity
from jupyter_mntrain.model.records.number import Number

Direction = Literal["sent", "received"]
Basis = Literal["interface", "ranks"]


class Spread(Record, frozen=True):
    """The spread of a figure over many: lowest, median and highest."""

    low: float
    median: float
    high: float


class Window(Record, frozen=True):
    """What a job did from the begin of the first step of a window to the end of its last one."""

    seconds: float
    steps: int
    tokens: float | None = None
    tokens_per_s: float | None = None
    parts_s: dict[str, float] = {}


class JobNumbers(Record, frozen=True):
    """Headline figures of a job.

    Args:
        step: never left out: ``null`` in JSON before the first one.
        predicted_step_s, predicted_tokens_per_s: not of a script.
        window: the recent steps; of an ended job the same as ``whole``.
        whole: all steps, over all attempts.
        counts_padding: whether padding is among the tokens; ``None`` = as the script counts them.
        slowest_rank: the one with the lowest pace, if it is behind by more than noise.
        not_finite: reports of a loss or a gradient norm that is NaN or infinite.
        first_not_finite_step: the first of these.
        skipped: steps of the run that were not applied; ``skipped_step`` is the last of them.
        missing: why a figure is not known, by its name.
    """

    step: int | None
    total_steps: int | None = None
    step_s: float | None = None
    step_spread: Spread | None = None
    predicted_step_s: float | None = None
    predicted_tokens_per_s: float | None = None
    elapsed_s: float | None = None
    remaining_s: float | None = None
    remaining_low_s: float | None = None
    remaining_high_s: float | None = None
    tokens_per_s: float | None = None
    mfu: float | None = None
    bubble: float | None = None
    schedule_bubble: float | None = None
    loss: Number | None = None
    first_loss: Number | None = None
    evaluation_loss: Number | None = None
    slowest_rank: Rank | None = None
    busiest_link: float | None = None
    busiest_bytes_per_s: float | None = None
    not_finite: int = 0
    first_not_finite_step: int | None = None
    skipped: int = 0
    skipped_step: int | None = None
    window: Window | None = None
    whole: Window | None = None
    lost_steps: int = 0
    counts_padding: bool | None = None
    missing: dict[str, str] = {}


class RankSummary(Record, frozen=True):
    """The recent figures of one rank.

    Args:
        pid: of its process on its node, while that lives.
        peak_source: where the peak of its MFU is from.
        compute, coding, send, wait, schedule_bubble: add up to 1, see
            :class:`jupyter_mntrain.metrics.series.RankColumns`.
        compared_transfers: of what it sends in fewer bits, the newest of each boundary and
            direction.
        missing: why a figure is not known, by its name.
        is_ready: it has begun, and waits for its first step or makes steps.
        progress: of what it does before its next step, if it says so.
    """

    rank: Rank
    node: str
    state: JobState
    local_rank: int = 0
    stages: tuple[int, ...] = ()
    layers: tuple[int, ...] = ()
    device: str | None = None
    step: int | None = None
    tokens_per_s: float | None = None
    pace_tokens_per_s: float | None = None
    mfu: float | None = None
    peak_source: str | None = None
    compute: float | None = None
    coding: float | None = None
    send: float | None = None
    wait: float | None = None
    schedule_bubble: float | None = None
    memory_bytes: int | None = None
    reserved_bytes: int | None = None
    compared_transfers: tuple[ComparedTransfer, ...] = ()
    missing: dict[str, str] = {}
    is_ready: bool = False
    progress: RankProgress | None = None
    pid: int | None = None


class LinkSummary(Record, frozen=True):
    """One direction of a node's training interface, during the recent steps.

    Args:
        basis: of its rates: the interface's counters, or the payload that the node's ranks report,
            where several nodes share a loopback interface.
        peers: nodes its ranks exchange activations with.
        missing: why the rate or the utilization is not known.
    """

    node: str
    interface: str
    direction: Direction
    basis: Basis
    bytes_per_s: float | None = None
    own_bytes_per_s: float | None = None
    utilization: float | None = None
    capacity: Capacity | None = None
    peers: tuple[str, ...] = ()
    missing: str | None = None


class WrittenText(Record, frozen=True):
    """The model's continuation of ``prompt`` after ``step`` steps."""

    time_s: float
    step: int
    prompt: str
    text: str


class EventMark(Record, frozen=True):
    """An event or a period that is marked on the time axis of every chart.

    Args:
        label: a few words.
        end_s: Unix time; ``None`` = at a moment, or not over.
    """

    time_s: float
    label: str
    end_s: float | None = None


EventKind = Literal[
    "started",
    "resumed",
    "restarted",
    "saved",
    "changed",
    "stalled",
    "slow",
    "link-slow",
    "traffic",
    "warning",
    "ended",
    "failed",
]


class JobEvent(Record, frozen=True):
    """Something that happened to a job at a time, as data for charts rather than a sentence.

    Args:
        end_s: Unix time; ``None`` = at a moment, or not over.
        step: of the checkpoint that was saved or resumed from; after which settings were changed.
        node: whose link had other traffic.
        label: of a slowdown or warning, a few words; of changed settings, from what to what.
        problem: its cause and fix, where it is one.
        share: of other traffic: the most of the link's capacity, 0..1.
    """

    kind: EventKind
    time_s: float
    end_s: float | None = None
    step: int | None = None
    node: str | None = None
    label: str = ""
    problem: Problem | None = None
    share: float | None = None


class OffPlanCause(Record, frozen=True):
    """One thing that is not as planned.

    Args:
        kind: what a rank computes; a message to ``peer``; what others use of a node's link.
        ratio: measured / planned; of ``traffic`` the share of the link's capacity.
        is_guessed: the plan had no measured speed for it.
        took_s, planned_s: of one message.
    """

    kind: Literal["computing", "link", "traffic"]
    ratio: float
    rank: Rank | None = None
    peer: Rank | None = None
    node: str | None = None
    is_guessed: bool = False
    took_s: float | None = None
    planned_s: float | None = None


class OffPlan(Record, frozen=True):
    """Why a step takes longer or shorter than its plan predicted.

    Args:
        ratio: measured / predicted.
        causes: the largest first; empty if ranks wait although all takes as long as planned.
    """

    ratio: float
    causes: tuple[OffPlanCause, ...] = ()


class JobSummary(JobNumbers, frozen=True, kw_only=True):
    """A job's newest attempt, as ``status`` and ``--json`` show it."""

    job_id: JobId
    name: str
    state: JobState
    ranks: tuple[RankSummary, ...] = ()
    spreads: dict[str, Spread] = {}
    """Of the ranks' pace, MFU and computing, by the figure's name."""
    links: tuple[LinkSummary, ...] = ()
    sample: WrittenText | None = None
    """What the model wrote last."""
    problem: Problem | None = None
    verdict: Verdict | None = None
    """The problem with what speaks for and against it."""
    stall: Problem | None = None
    warnings: tuple[Problem, ...] = ()
    """What makes its numbers doubtful, or it slow, although it has not failed."""
    marks: tuple[EventMark, ...] = ()
    """When warnings began, and ended, oldest first."""
    events: tuple[JobEvent, ...] = ()
    """What happened to the newest attempt, oldest first. Evaluations are in the series."""
    off_plan: OffPlan | None = None
    """Why it is off by more than a tenth; ``None`` without a plan, too."""
    clock_ahead_s: float = 0.0
    """The clock that its times are by, compared with that of the machine that shows it; 0 = they
    agree."""
    attempt: int = 1
    attempts: int = 1
    """How many there may be."""
    restart: Restart | None = None
    saved_step: int | None = None
    """Of the newest checkpoint that is whole."""
    resumed_step: int | None = None
    """Of the checkpoint that the attempt went on from, as its ranks report it."""
    run: JobId | None = None
    """The run that it belongs to, if that was begun by another job."""

    @property
    def numbers(self) -> JobNumbers:
        """The headline figures alone."""
        return msgspec.convert(self, JobNumbers, from_attributes=True)
