"""Job summary: computed from a job's rows and its view."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from statistics import median, quantiles
from typing import Any

import msgspec

from jupyter_mntrain.metrics.events import events_of
from jupyter_mntrain.metrics.history import JobHistory
from jupyter_mntrain.metrics.rows.job_rows import JobRows
from jupyter_mntrain.metrics.rows.link_rows import NO_SAMPLE, LinkRows
from jupyter_mntrain.metrics.rows.rank_rows import NO_LOSS, WARM_UP, RankRows, rate_of, short
from jupyter_mntrain.metrics.summary import (
    Direction,
    EventMark,
    JobEvent,
    JobSummary,
    LinkSummary,
    OffPlan,
    RankSummary,
    Spread,
    Window,
    WrittenText,
)
from jupyter_mntrain.metrics.time_left import TimeLeft
from jupyter_mntrain.metrics.trace.off_plan import first_pipeline, measured_of, off_plan
from jupyter_mntrain.metrics.trace.sent_messages import Pair, SentMessages
from jupyter_mntrain.model.failure.kinds import SLOWNESS
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.lifecycle.clock import MOST_DIFFERENCE_S
from jupyter_mntrain.model.lifecycle.listing import elapsed_s
from jupyter_mntrain.model.lifecycle.running_changes import changes_of_attempt
from jupyter_mntrain.model.quantities import agreeing, numbered
from jupyter_mntrain.model.records.job import TERMINAL, JobView
from jupyter_mntrain.model.records.number import carried
from jupyter_mntrain.model.records.plan import Plan
from jupyter_mntrain.plan.link_capacities import LinkCapacities
from jupyter_mntrain.telemetry import formulas

NOISE = 0.03
"""How far the slowest pace must be below the next one; less is noise."""

DOUBTFUL = 2.0
"""Times that messages take as long as a link's capacity says, from which that is another one."""

LEAST_PART = 1e-4
"""Smallest share of a window that is listed."""

NO_TOTAL = "no number of steps is reported: recorder.start(total_steps=…)"
ZERO_TOKENS = "every step reports 0 tokens"
TOO_UNSURE = "so far the steps differ too much, or are too few, to tell"

Ranks = Mapping[Rank, RankRows]
Links = Mapping[str, LinkRows]


def summarize(
    history: JobHistory,
    *,
    now_s: float,
    ranks: Ranks,
    job: JobRows,
    links: Links,
    capacities: LinkCapacities,
    evaluation_loss: float | None,
    sample: WrittenText | None,
    peak_flops_per_s: float | None,
    schedule_bubble: float | None,
    traffic: Sequence[JobEvent] = (),
    messages: Mapping[Pair, SentMessages] = {},
) -> JobSummary:
    """Summarize what ``ranks``, ``job`` and ``links`` have read from ``history``.

    Args:
        now_s: Unix time, by this machine's clock.
        traffic: of others, on any of the links.
        messages: of the newest recorded steps.
        peak_flops_per_s: of all devices together.
    """
    view, now_s = history.view, now_s + history.clock_ahead_s
    last = job.table.last("step")
    step = None if last is None else int(last)
    total = _total_steps(view, ranks)
    link_summaries = tuple(
        one
        for link in links.values()
        for one in _links(link, ranks, links, capacities, makes_steps=step is not None)
    )
    is_over = view.state in TERMINAL
    rank_summaries = _rank_summaries(view, ranks, is_over=is_over)
    why_off_plan = _off_plan(history, _mean_step_s(job), messages, traffic)
    slow = set(_slow_links(history, why_off_plan))
    link_summaries = tuple(_doubted(one, slow) for one in link_summaries)
    figures = _figures(job, link_summaries, peak_flops_per_s, is_over=is_over)
    left = _time_left(view, job, step, total, now_s)
    facts: dict[str, Any] = {**figures, **_of_view(view)}
    whole = _window(job, is_whole=True)
    return JobSummary(
        job_id=view.job_id,
        name=view.spec.name,
        state=view.state,
        step=step,
        total_steps=total,
        remaining_s=short(left.seconds) if left else None,
        remaining_low_s=short(left.low_s) if left else None,
        remaining_high_s=short(left.high_s) if left else None,
        step_spread=_spread_of(job.table.single("steps_s", is_whole=is_over)),
        window=_window(job, is_whole=is_over),
        whole=whole,
        predicted_tokens_per_s=_predicted_rate(view.attempt.plan, whole),
        lost_steps=job.lost_steps,
        counts_padding=_counts_padding(ranks),
        elapsed_s=elapsed_s(view, now_s),
        **facts,
        schedule_bubble=short(schedule_bubble),
        loss=None if job.last_loss is None else carried(job.last_loss),
        first_loss=None if job.first_loss is None else carried(job.first_loss),
        evaluation_loss=None if evaluation_loss is None else carried(evaluation_loss),
        slowest_rank=_slowest(ranks),
        not_finite=job.not_finite,
        first_not_finite_step=job.first_not_finite_step,
        skipped=job.skipped,
        skipped_step=job.skipped_step,
        missing={
            **_missing(job, rank_summaries, link_summaries, **figures, loss=job.last_loss),
            **({} if left else _no_time_left(view, step, total)),
        },
        ranks=rank_summaries,
        spreads=_spreads(rank_summaries),
        events=events_of(view, traffic),
        links=link_summaries,
        sample=sample,
        clock_ahead_s=_told_ahead_s(history.clock_ahead_s),
        off_plan=why_off_plan,
    )


def _told_ahead_s(ahead_s: float) -> float:
    """Round a clock difference to whole seconds; 0 if it is too small to notice."""
    return float(round(ahead_s)) if abs(ahead_s) > MOST_DIFFERENCE_S else 0.0


def _total_steps(view: JobView, ranks: Ranks) -> int | None:
    """Return the steps that the job is to make, as last changed by a user or as its ranks began."""
    changed = [one.total_steps for one in changes_of_attempt(view.parts)]
    began = [known.start.total_steps for known in ranks.values() if known.start]
    return next((one for one in (*reversed(changed), *began) if one), None)


def _off_plan(
    history: JobHistory,
    step_s: float | None,
    messages: Mapping[Pair, SentMessages],
    traffic: Sequence[JobEvent],
) -> OffPlan | None:
    plan = history.view.attempt.plan
    if plan is None or step_s is None:
        return None
    return off_plan(plan, measured_of(history, plan, step_s, messages, traffic))


def _doubted(one: LinkSummary, slow: Collection[tuple[str, Direction]]) -> LinkSummary:
    """Mark the link's capacity as doubtful if messages show that it has changed.

    Args:
        slow: nodes and directions of links on which they take much longer than planned.
    """
    if one.capacity is None or (one.node, one.direction) not in slow:
        return one
    capacity = msgspec.structs.replace(one.capacity, is_doubtful=True)
    return msgspec.structs.replace(one, capacity=capacity)


def _slow_links(history: JobHistory, off: OffPlan | None) -> Iterator[tuple[str, Direction]]:
    """Yield both ends of each link whose messages take much longer than planned."""
    plan = history.view.attempt.plan
    if off is None or plan is None:
        return
    first = first_pipeline(history, plan)
    node_of = {rank: one.node for one in history.view.attempt.placements for rank in one.ranks}
    for cause in off.causes:
        if cause.rank is not None and cause.peer is not None and cause.ratio >= DOUBTFUL:
            yield node_of[first[cause.rank]], "sent"
            yield node_of[first[cause.peer]], "received"


def _predicted_rate(plan: Plan | None, whole: Window | None) -> float | None:
    """Return the predicted tokens per second, with tokens counted as the job counts them.

    A plan counts padding, which most jobs do not.
    """
    if plan is None:
        return None
    if whole is None or not whole.tokens or not plan.step_s:
        return plan.tokens_per_s
    return short(whole.tokens / whole.steps / plan.step_s)


def _of_view(view: JobView) -> dict[str, Any]:
    """Return the fields that come from the view alone."""
    plan = view.attempt.plan
    return {
        "predicted_step_s": plan and plan.step_s,
        "problem": view.problem,
        "verdict": view.verdict,
        "stall": view.stall,
        "warnings": view.warnings,
        "marks": tuple(_marks(view)),
        "attempt": view.attempt.number,
        "attempts": view.spec.max_restarts + 1,
        "restart": view.restart,
        "saved_step": view.saved_step,
        "resumed_step": view.resumed_step,
        "run": view.run if view.run != view.job_id else None,
    }


def _marks(view: JobView) -> Iterator[EventMark]:
    """Yield when the job was slower than before, and when other warnings began."""
    slower = [
        EventMark(time_s=one.problem.time_s, label=one.label, end_s=one.end_s)
        for one in view.episodes
        if one.problem.time_s is not None
    ]
    others = [
        EventMark(time_s=one.time_s, label=one.kind.replace("-", " "))
        for one in view.warnings
        if one.time_s is not None and one.kind not in SLOWNESS
    ]
    yield from sorted([*slower, *others], key=lambda one: one.time_s)


def _figures(
    job: JobRows,
    links: tuple[LinkSummary, ...],
    peak_flops_per_s: float | None,
    *,
    is_over: bool,
) -> dict[str, float | None]:
    """Return the headline figures: of the recent steps, or of all steps if the job is over."""
    count = job.table.total if is_over else job.table.recent
    times = job.table.single("steps_s", is_whole=is_over)

    used = [one.utilization for one in links if one.utilization is not None]
    rates = [one.bytes_per_s for one in links if one.bytes_per_s is not None]
    return {
        "step_s": short(median(times)) if times else None,
        "tokens_per_s": short(rate_of(count, "made", "wall_s")) or None,
        "mfu": short(formulas.mfu(rate_of(count, "flops", "wall_s"), peak_flops_per_s)),
        "bubble": short(rate_of(count, "idle_s", "steps_s")),
        "busiest_link": max(used, default=None),
        "busiest_bytes_per_s": max(rates, default=None),
    }


def _counts_padding(ranks: Ranks) -> bool | None:
    told = {known.start.counts_padding for known in ranks.values() if known.start}
    return told.pop() if len(told) == 1 else None


def _time_left(
    view: JobView, job: JobRows, step: int | None, total: int | None, now_s: float
) -> TimeLeft | None:
    """Return the time left; ``None`` until it can be estimated."""
    ended_s = job.table.last("time_s")
    if step is None or total is None or view.state != "running" or step >= total:
        return None
    return job.recurring.time_left(step, total, age_s=now_s - (ended_s or now_s))


def _spread_of(times: list[float]) -> Spread | None:
    if not times:
        return None
    tenths = quantiles(times, n=10, method="inclusive") if len(times) > 1 else times * 9
    return Spread(low=_short(tenths[0]), median=_short(median(times)), high=_short(tenths[-1]))


def _mean_step_s(job: JobRows) -> float | None:
    """Return the mean step time of recent steps without pauses, which is what a plan predicts."""
    return rate_of(job.table.recent, "steps_s", "steps")


PARTS = {
    "data": "data_s",
    "long steps": "long_s",
    "stall": "stall_s",
    "evaluation": "evaluation_s",
    "sampling": "sampling_s",
    "saving": "saving_s",
    "lost steps": "lost_s",
    "restarting": "restart_s",
}
"""Of a window: the count that each is, next to the steps."""


def _window(job: JobRows, *, is_whole: bool) -> Window | None:
    """Return the window of the recent steps, or of all."""
    count = job.table.total if is_whole else job.table.recent
    seconds, steps = count("wall_s"), count("steps")
    if not seconds or not steps:
        return None
    parts = {part: count(name) or 0.0 for part, name in PARTS.items()}
    within = ("data", "long steps", "stall")
    of_steps = (count("steps_s") or 0.0) - sum(parts[one] for one in within)
    named = sum(parts.values()) + of_steps
    parts |= {"steps": max(0.0, of_steps), "other": max(0.0, seconds - named)}
    tokens = count("made")
    return Window(
        seconds=_short(seconds),
        steps=int(steps),
        tokens=tokens,
        tokens_per_s=short(formulas.throughput(tokens, seconds) if tokens else None),
        parts_s={part: _short(one) for part, one in parts.items() if one > LEAST_PART * seconds},
    )


def _short(value: float) -> float:
    return short(value) or 0.0


def _rank_summaries(view: JobView, ranks: Ranks, *, is_over: bool) -> tuple[RankSummary, ...]:
    return tuple(
        known.summary(one.state, pid, is_over=is_over)
        if (known := ranks.get(one.rank))
        else RankSummary(rank=one.rank, node=part.node, state=one.state, pid=pid)
        for part in view.parts
        for one in part.ranks
        for pid in (None if one.state in TERMINAL else one.pid,)
    )


def _slowest(ranks: Ranks) -> Rank | None:
    paces = sorted(
        (pace, rank)
        for rank, known in ranks.items()
        if (pace := known.pace_tokens_per_s) is not None
    )
    if len(paces) < 2 or paces[0][0] > (1 - NOISE) * paces[1][0]:
        return None
    return paces[0][1]


def _links(
    link: LinkRows,
    ranks: Ranks,
    links: Links,
    capacities: LinkCapacities,
    *,
    makes_steps: bool,
) -> Iterator[LinkSummary]:
    own = [ranks[Rank(rank)] for rank in link.placement.ranks if rank in ranks]
    spans = [span for known in own if (span := known.table.recent_span())]
    span = (min(one[0] for one in spans), max(one[1] for one in spans)) if spans else None
    if not makes_steps:
        span = link.newest_span()
    neighbors = {Rank(peer) for known in own if known.start for peer in known.start.neighbors}
    nodes = {ranks[rank].placement.node: None for rank in sorted(neighbors) if rank in ranks}
    nodes.pop(link.placement.node, None)
    series = [known.series for known in own if known.series is not None]
    node = link.placement.node
    others = nodes or [one for one in links if one != node]
    return link.summary(
        span,
        series,
        tuple(nodes),
        {
            "sent": capacities.of((node, other) for other in others),
            "received": capacities.of((other, node) for other in others),
        },
    )


def _missing(
    job: JobRows,
    ranks: tuple[RankSummary, ...],
    links: tuple[LinkSummary, ...],
    **figures: float | None,
) -> dict[str, str]:
    """Return why figures are unknown, by name."""
    if not len(job.table):
        return {}
    silent = _silent(ranks)

    def of_ranks(name: str) -> str:
        why = "; ".join(dict.fromkeys(one.missing[name] for one in ranks if name in one.missing))
        return why or WARM_UP

    is_none = not silent and job.table.recent("made") == 0
    reasons = {
        "step_s": WARM_UP,
        "tokens_per_s": silent or (ZERO_TOKENS if is_none else of_ranks("tokens_per_s")),
        "mfu": silent or of_ranks("mfu"),
        "bubble": silent or of_ranks("compute"),
        "loss": NO_LOSS,
        "busiest_link": "the job runs on a single node",
    }
    if links:
        reasons["busiest_link"] = next((one.missing for one in links if one.missing), NO_SAMPLE)
    # A link without a measured capacity has a rate.
    figures["busiest_link"] = figures["busiest_bytes_per_s"]
    return {name: why for name, why in reasons.items() if figures[name] is None}


def _no_time_left(view: JobView, step: int | None, total: int | None) -> dict[str, str]:
    """Return why the time left is unknown, if the job makes steps."""
    if view.state != "running" or not step:
        return {}
    if total is None:
        return {"remaining_s": NO_TOTAL}
    if step > total:
        return {"remaining_s": f"it has made more steps than the {total} that it reported"}
    return {} if step == total else {"remaining_s": TOO_UNSURE}


def _silent(ranks: tuple[RankSummary, ...]) -> str:
    """Name the nodes that do not answer and the ranks that report nothing; empty if none."""
    without = [one for one in ranks if one.step is None]
    nodes = dict.fromkeys(one.node for one in without if one.state == "unknown")
    others = [one.rank for one in without if one.state != "unknown"]
    said = [f"{node} does not answer" for node in nodes]
    if others:
        verb = agreeing(others, "reports", "report")
        said.append(f"{numbered('rank', others)} {verb} nothing")
    return "; ".join(said)


def _spreads(ranks: tuple[RankSummary, ...]) -> dict[str, Spread]:
    """Return the spread of each figure that is drawn per rank."""
    told = {
        name: [value for one in ranks if (value := getattr(one, name)) is not None]
        for name in ("pace_tokens_per_s", "mfu", "compute")
    }
    return {
        name: Spread(low=min(of), median=median(of), high=max(of))
        for name, of in told.items()
        if of
    }
