"""Recorded step: the traces of all ranks as spans on a common time line. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

from jupyter_mntrain.metrics.history import JobHistory
from jupyter_mntrain.metrics.trace.clocks import corrections
from jupyter_mntrain.metrics.trace.messages import (
    Message,
    Traces,
    least_idle_s,
    messages,
    working,
)
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.metrics import RankTrace, TracedAction
from jupyter_mntrain.model.records.plan import StepSpan, StepSpans


def recorded_steps(history: JobHistory) -> dict[int, Traces]:
    """Return the steps that every rank has traced, oldest first."""
    by_step: dict[int, dict[Rank, RankTrace]] = defaultdict(dict)
    for rank, series in history.ranks.items():
        for trace in series.traces:
            by_step[trace.step][rank] = trace
    ranks = history.view.attempt.world_size
    return {step: one for step, one in sorted(by_step.items()) if len(one) == ranks}


def spans_of(traces: Traces) -> StepSpans:
    """Return one step of all ranks as spans, from the begin of the rank that began first.

    A message lasts until its receiver, which idles, begins to compute with it. One that nobody
    waits for is drawn as long as those of the same direction usually are, as nobody notes when it
    arrives.

    Args:
        traces: of the same step, at least one.
    """
    exchanged = [*messages(traces)]
    from_origin = aligned(traces, exchanged)
    found: dict[Rank, list[StepSpan]] = {
        rank: [*_own(trace, from_origin[rank], _awaiting(rank, exchanged))]
        for rank, trace in traces.items()
    }
    for one, begin, end in _under_way(exchanged, from_origin):
        stage, microbatch = one.sent.stage, one.sent.microbatch
        found[one.sender].append(StepSpan("send", begin, end, stage, microbatch, one.receiver))
        stage = one.used.stage
        found[one.receiver].append(StepSpan("receive", begin, end, stage, microbatch, one.sender))
    ranks = tuple(
        tuple(sorted(found[rank], key=lambda span: (span.begin_s, span.end_s)))
        for rank in sorted(found)
    )
    ends = [from_origin[rank] + trace.step_s for rank, trace in traces.items()]
    return StepSpans(max(ends), ranks, next(iter(traces.values())).step)


def aligned(traces: Traces, exchanged: Sequence[Message]) -> dict[Rank, float]:
    """Return when each rank began the step, relative to the rank that began first."""
    added = corrections(traces, exchanged)
    begins = {rank: trace.begin_s + added[rank] for rank, trace in traces.items()}
    origin = min(begins.values())
    return {rank: begin - origin for rank, begin in begins.items()}


def _awaiting(rank: Rank, exchanged: Sequence[Message]) -> dict[TracedAction, Rank]:
    """Return the rank that each action had to wait for."""
    return {one.used: one.sender for one in exchanged if one.receiver == rank}


def _own(trace: RankTrace, shift_s: float, senders: dict[TracedAction, Rank]) -> Iterator[StepSpan]:
    """Yield a rank's computations, and the gaps in which it waited."""
    least_s, actions = least_idle_s(trace), working(trace)
    for before, one in pairwise([TracedAction("update", 0.0, 0.0), *actions]):
        stage = one.stage if one.stage >= 0 else None
        microbatch = one.microbatch if one.microbatch >= 0 else None
        # Before its first stage's first microbatch a rank reads its batch.
        is_reading = before.end_s == 0.0 and one not in senders
        if one.begin_s - before.end_s > least_s and not is_reading:
            yield StepSpan(
                "wait",
                before.end_s + shift_s,
                one.begin_s + shift_s,
                stage,
                microbatch,
                senders.get(one),
            )
        yield StepSpan(
            one.kind,  # type: ignore[arg-type]
            one.begin_s + shift_s,
            one.end_s + shift_s,
            stage,
            microbatch,
        )


def _under_way(
    exchanged: Sequence[Message], from_origin: dict[Rank, float]
) -> Iterator[tuple[Message, float, float]]:
    """Yield each message with its begin and its end."""
    lasted: dict[tuple[Rank, Rank], list[float]] = defaultdict(list)
    ends = []
    for one in exchanged:
        begin = one.sent.begin_s + from_origin[one.sender]
        end = max(begin, one.used.begin_s + from_origin[one.receiver])
        ends.append((one, begin, end))
        if one.is_awaited:
            lasted[one.sender, one.receiver].append(end - begin)
    for one, begin, end in ends:
        known = lasted.get((one.sender, one.receiver))
        usual_s = end - begin if one.is_awaited or not known else median(known)
        yield one, begin, min(end, begin + usual_s)
