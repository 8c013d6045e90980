"""Job summary: the figures that page, picture, tables, JSON and CSV show of a job. Records only.

Rates are counts over wall time: of a running job those of the recent steps, see
:mod:`jupyter_mntrain.metrics.recent`, of an ended one those of the whole job. ``None`` means not
known, and ``missing`` says why; shares and utilizations are 0..1.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.failure.verdict import Verdict
from jupyter_mntrain.model.ids import JobId, Rank
from jupyter_mntrain.model.records.job import JobState, Restart
from jupyter_mntrain.model.records.metrics import RankProgress
from jupyter_mntrain.model.records.node import Capacity
from jupyter_mntrain.model.records.number import Number

Direction = Literal["sent", "received"]
Basis = Literal["interface", "ranks"]


class Spread(Record, frozen=True):
    """A figure of many: the lowest, the middle one and the highest."""

    low: float
    median: float
    high: float


class Window(Record, frozen=True):
    """What a job did in a time: from the begin of its first step to the end of its last one.

    Args:
        seconds: of wall time; ``parts_s`` add up to it.
        steps: that ended in it. Those that were made twice are counted once.
        tokens: of these steps, of all replicas.
        tokens_per_s: tokens over seconds.
        parts_s: seconds by what they were spent on: ``steps``; ``data``, waiting for batches;
            ``long steps``, that took several times as long as usual; ``stall``, those of them that
            took longer than a step reasonably can; ``evaluation``; ``sampling``;
            ``saving``; ``lost steps``, which a restart made again; ``restarting``; ``other``.
    """

    seconds: float
    steps: int
    tokens: float | None = None
    tokens_per_s: float | None = None
    parts_s: dict[str, float] = {}


class JobNumbers(Record, frozen=True):
    """Headline figures of a job.

    Args:
        step: the last optimizer step that every rank that reports has finished, from 1;
            never left out: ``null`` in JSON before the first one.
        step_s: seconds per step, the median of the recent ones, without what stands between them;
            ``step_spread`` says how they differ: nine of ten are not below its low, nor above its
            high.
        predicted_step_s: the same as its plan predicted it, and ``predicted_tokens_per_s``; not of
            a script.
        elapsed_s: since the first attempt started, until the last one ended.
        remaining_s: until the last step, with the evaluations, saves and long steps to come; while
            it runs and has steps left, from ``remaining_low_s`` to ``remaining_high_s``.
        tokens_per_s: of the job: ranks of one pipeline see the same tokens, replicas add up. Of the
            time that ``window`` is of, and with all that was done in it.
        window: the recent steps; of an ended job the same as ``whole``.
        whole: all steps, over all attempts.
        counts_padding: whether padding is among the tokens; ``None`` = as the script counts them.
        lost_steps: that were made twice, because an attempt went on from an earlier checkpoint.
        mfu: model FLOPs per second of all ranks over the sum of their devices' own peaks.
        bubble: mean share of a step in which ranks run neither forward nor backward.
        schedule_bubble: the schedule's own bubble, for equal stages and infinitely fast links.
        loss: the last one; ``first_loss`` the first one.
        evaluation_loss: the last one, on text that is not trained on.
        slowest_rank: the one with the lowest pace, if it is behind by more than noise.
        busiest_link: utilization of the fullest link and direction.
        busiest_bytes_per_s: the highest rate of any link and direction.
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
    """One rank.

    Args:
        pid: of its process on its node, while that lives.
        step: last optimizer step finished, from 1.
        tokens_per_s: tokens of the recent steps, those of all replicas, over the time from the
            first one's begin to the last one's end on this rank.
        pace_tokens_per_s: the same tokens over the time this rank computed: the job's throughput if
            this rank never waited. The slowest pace is the bottleneck.
        mfu: model FLOPs of this rank's stages over this device's own peak.
        peak_source: where that peak is from.
        compute: share of a step in forward, backward and the optimizer; ``send``, ``wait`` and
            ``schedule_bubble`` are the rest of it, see
            :class:`jupyter_mntrain.metrics.series.RankColumns`.
        memory_bytes: the most it ever reported.
        reserved_bytes: what torch's allocator held of the GPU at its newest step.
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
    send: float | None = None
    wait: float | None = None
    schedule_bubble: float | None = None
    memory_bytes: int | None = None
    reserved_bytes: int | None = None
    missing: dict[str, str] = {}
    is_ready: bool = False
    progress: RankProgress | None = None
    pid: int | None = None


class LinkSummary(Record, frozen=True):
    """One direction of the interface a node trains over, during the recent steps.

    Args:
        bytes_per_s: by the interface's counters (``basis`` "interface"), or the payload that the
            node's ranks report (``basis`` "ranks": several nodes share a loopback interface).
        own_bytes_per_s: this job's part of it.
        utilization: of the capacity of this direction: what this node sends to its peers, or they
            to it.
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
    """Something that is marked on the time axis of every chart.

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
    """Something that happened to a job at a time; what it means is data, not a sentence.

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
    """What is not as planned.

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
    """Why a step does not take as long as its plan predicted.

    Args:
        ratio: measured / predicted.
        causes: the largest first; empty if ranks wait although all takes as long as planned.
    """

    ratio: float
    causes: tuple[OffPlanCause, ...] = ()


class JobSummary(JobNumbers, frozen=True, kw_only=True):
    """A whole job, its newest attempt: what ``status`` and ``--json`` show."""

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
    """The clock that its times are by, next to that of the machine that shows it; 0 = they
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
