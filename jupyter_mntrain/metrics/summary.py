"""A job in one table: what ``status``, the final table and ``--json`` show. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, median

from jupyter_mntrain.metrics.history import JobHistory, RankSeries
from jupyter_mntrain.metrics.link_summary import LinkSummary, summarize_links
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.ids import JobId, Rank
from jupyter_mntrain.model.records.job import (
    TERMINAL,
    Cause,
    Diagnosis,
    JobState,
    JobView,
    PartStatus,
    Restart,
)
from jupyter_mntrain.model.records.metrics import RankProgress, RankStep
from jupyter_mntrain.telemetry import formulas

WARM_UP_STEPS = 2
"""Left out of every rate: allocation, compilation and the first connections happen in them."""


class RankSummary(Record, frozen=True):
    """One rank. Rates are medians over its steps after the first two; ``None`` = not known.

    Args:
        step: last optimizer step finished, from 1.
        tokens_per_s: tokens of a step over its whole duration.
        pace_tokens_per_s: tokens of a step over the time this rank computed: what it could do if
            it never waited. The slowest pace is the bottleneck.
        mfu: model FLOPs of this rank's stages over this device's own peak, 0..1.
        compute_share: share of a step spent in forward and backward, 0..1.
        memory_bytes: the most it ever reported.
        progress: of what it does before its next step, if it says so.
    """

    rank: Rank
    node: str
    state: JobState
    stages: tuple[int, ...] = ()
    layers: tuple[int, ...] = ()
    step: int | None = None
    tokens_per_s: float | None = None
    pace_tokens_per_s: float | None = None
    mfu: float | None = None
    compute_share: float | None = None
    memory_bytes: int | None = None
    device: str | None = None
    progress: RankProgress | None = None


class JobSummary(Record, frozen=True):
    """A whole job. ``None`` = not known, never a guess; shares are 0..1.

    Args:
        steps: optimizer steps that every rank has finished.
        elapsed_s: since the first part started, until the last one ended.
        tokens_per_s: of the job: ranks of one pipeline see the same tokens, replicas add up.
        mfu: model FLOPs of all ranks over the sum of their devices' own peaks.
        bubble: mean share of a step in which ranks did neither forward nor backward.
        evaluation_loss: the last one, on text that is not trained on.
    """

    job_id: JobId
    name: str
    state: JobState
    steps: int
    total_steps: int | None = None
    elapsed_s: float | None = None
    tokens_per_s: float | None = None
    mfu: float | None = None
    bubble: float | None = None
    first_loss: float | None = None
    last_loss: float | None = None
    evaluation_loss: float | None = None
    ranks: tuple[RankSummary, ...] = ()
    links: tuple[LinkSummary, ...] = ()
    cause: Cause | None = None
    cause_node: str | None = None
    stall: Diagnosis | None = None
    attempt: int = 1
    attempts: int = 1
    """How many there may be."""
    restart: Restart | None = None
    saved_step: int | None = None
    """Of the newest checkpoint that is whole."""


def summarize(history: JobHistory, *, now_s: float) -> JobSummary:
    """The table of a job's newest attempt.

    Args:
        now_s: Unix time, for how long an unfinished job has been running.
    """
    view = history.view
    series = {rank: history.ranks.get(rank) for part in view.parts for rank in _ranks_of(part)}
    steady = [_steady(one.steps) for one in series.values() if one]
    losses = _losses(history.ranks.values())
    bubbles = [1.0 - share for steps in steady if (share := _compute_share(steps)) is not None]
    return JobSummary(
        job_id=view.job_id,
        name=view.spec.name,
        state=view.state,
        steps=min((_last_step(one) or 0 for one in series.values()), default=0),
        total_steps=next(
            (s.start.total_steps for s in series.values() if s and s.start and s.start.total_steps),
            None,
        ),
        elapsed_s=elapsed_s(view, now_s),
        tokens_per_s=_job_tokens_per_s(history.ranks.values()),
        mfu=_job_mfu(list(series.values())),
        bubble=fmean(bubbles) if bubbles and len(bubbles) == len(series) else None,
        first_loss=losses[0] if losses else None,
        last_loss=losses[-1] if losses else None,
        evaluation_loss=history.evaluations[-1].loss if history.evaluations else None,
        ranks=tuple(
            _summarize_rank(part, rank, series[rank])
            for part in view.parts
            for rank in _ranks_of(part)
        ),
        links=summarize_links(history, warm_up_steps=WARM_UP_STEPS),
        cause=view.cause,
        cause_node=view.cause_node,
        stall=view.stall,
        attempt=view.attempt.number,
        attempts=view.spec.max_restarts + 1,
        restart=view.restart,
        saved_step=view.saved_step,
    )


def _summarize_rank(part: PartStatus, rank: Rank, series: RankSeries | None) -> RankSummary:
    state = next(status.state for status in part.ranks if status.rank == rank)
    if series is None:
        return RankSummary(rank=rank, node=part.node, state=state)
    start = series.start
    steps = _steady(series.steps)
    peak = start.peak_flops_per_s if start else None
    return RankSummary(
        rank=rank,
        node=part.node,
        state=state,
        stages=start.stages if start else (),
        layers=start.layers if start else (),
        step=_last_step(series),
        tokens_per_s=_tokens_per_s(series),
        pace_tokens_per_s=_median(steps, lambda s: _throughput(s.tokens, s.compute_s)),
        mfu=_median(steps, lambda s: formulas.mfu(s.flops, s.step_s, peak)),
        compute_share=_compute_share(steps),
        memory_bytes=max((s.memory_bytes for s in series.steps if s.memory_bytes), default=None),
        device=start.device if start else None,
        progress=series.progress,
    )


def _ranks_of(part: PartStatus) -> Iterable[Rank]:
    return (status.rank for status in part.ranks)


def _steady(steps: Sequence[RankStep]) -> Sequence[RankStep]:
    return steps[WARM_UP_STEPS:]


def _median(steps: Iterable[RankStep], value: Callable[[RankStep], float | None]) -> float | None:
    known = [v for step in steps if (v := value(step)) is not None]
    return median(known) if known else None


def _throughput(tokens: int | None, seconds: float | None) -> float | None:
    if tokens is None or seconds is None:
        return None
    return formulas.throughput(tokens, seconds)


def _tokens_per_s(series: RankSeries) -> float | None:
    return _median(_steady(series.steps), lambda s: _throughput(s.tokens, s.step_s))


def _compute_share(steps: Iterable[RankStep]) -> float | None:
    def share(step: RankStep) -> float | None:
        if step.compute_s is None:
            return None
        bubble = formulas.measured_bubble(step.compute_s, step.step_s)
        return None if bubble is None else 1.0 - bubble

    return _median(steps, share)


def _last_step(series: RankSeries | None) -> int | None:
    return series.steps[-1].step if series and series.steps else None


def _losses(all_series: Iterable[RankSeries]) -> list[float]:
    """The losses of the lowest rank that reports any."""
    for series in all_series:
        losses = [step.loss for step in series.steps if step.loss is not None]
        if losses:
            return losses
    return []


def _job_tokens_per_s(all_series: Iterable[RankSeries]) -> float | None:
    """Ranks that hold the same stages are replicas with tokens of their own: their rates add up.

    Ranks with different stages see the same tokens: the slowest stage is the pipeline's rate.
    Ranks of a script that knows no stages are all replicas.
    """
    by_stages: dict[tuple[int, ...], list[float | None]] = {}
    for series in all_series:
        stages = series.start.stages if series.start else ()
        by_stages.setdefault(stages, []).append(_tokens_per_s(series))
    rates = [
        sum(rate for rate in group if rate is not None)
        for group in by_stages.values()
        if None not in group
    ]
    return min(rates, default=None)


def _job_mfu(all_series: Sequence[RankSeries | None]) -> float | None:
    known = [series for series in all_series if series]
    durations = [d for s in known if (d := _median(_steady(s.steps), lambda step: step.step_s))]
    if not durations or len(known) < len(all_series):
        return None
    return formulas.job_mfu(
        [_median(_steady(series.steps), lambda step: step.flops) for series in known],
        max(durations),
        [series.start.peak_flops_per_s if series.start else None for series in known],
    )


def elapsed_s(view: JobView, now_s: float) -> float | None:
    """Seconds since the first part started, until the last one ended; ``None`` before."""
    started = [part.started_s for part in view.parts if part.started_s is not None]
    if not started:
        return None
    if view.state in TERMINAL:
        # Each part by its own node's clock: clocks of two nodes are never subtracted.
        ran = (
            part.ended_s - part.started_s
            for part in view.parts
            if part.started_s is not None and part.ended_s is not None
        )
        return max(ran, default=None)
    return max(0.0, now_s - min(started))
