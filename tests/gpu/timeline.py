"""Timeline: recorded spans of a step alongside what the profiler saw the card do.

Spans are taken between CUDA events. Behind each, while a step is looked at, a marker is queued: a
kernel that does nothing, by which the profiler's clock tells when the card passed the event. A card
that waits for its host computes in only a part of a span, so kernels' seconds do not add up to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

MARKER = "spin_kernel"
"""Part of the name of the kernel of ``torch.cuda._sleep``, which nothing else launches."""


class Kernel(NamedTuple):
    """Something that the card did: a kernel, a copy or a fill."""

    name: str
    begin_s: float
    end_s: float


class Span(NamedTuple):
    """A recorded span.

    Args:
        seconds: between its events.
        first: number of its first mark among the step's, from 0; ``last`` likewise.
    """

    name: str
    seconds: float
    first: int
    last: int


def recorded_spans(step: Any, marks: Sequence[Any], stopwatch: Any) -> list[Span]:
    """Spans of a :class:`QueuedStep` that count as computing or as the optimizer.

    Args:
        marks: of the step, in the order in which they were made.
    """
    numbers = {id(mark): number for number, mark in enumerate(marks)}
    given = [(_name(one), one.begin, one.end) for one in step.metered.timed]
    moments = step.marks
    given += [
        ("the gradient's norm", moments.passed, moments.squared),
        ("the update", moments.agreed, moments.updated),
    ]
    return [
        Span(name, stopwatch.seconds(begin, end), numbers[id(begin)], numbers[id(end)])
        for name, begin, end in given
    ]


def _name(timed: Any) -> str:
    kinds = {"F": "forward", "B": "backward", "I": "input-gradient", "W": "weight-gradient"}
    return f"{kinds[timed.kind]} {timed.microbatch}" if timed.kind else "loss"


def beside_kernels(spans: Sequence[Span], marks: int, kernels: Iterable[Kernel]) -> dict[str, Any]:
    """Compare spans with a trace of the same step.

    Returns:
        ``markers`` that the trace has; with one per mark also ``spans``, each with its seconds
        ``recorded_s``, by the profiler's clock ``seen_s``, from the begin of its first kernel to
        the end of its last ``window_s``, and ``busy_s`` in which some kernel ran; besides,
        ``outside_s``: in which a kernel ran outside of all spans.
    """
    given = sorted(kernels, key=lambda one: one.begin_s)
    at = [one.begin_s for one in given if MARKER in one.name]
    found: dict[str, Any] = {"marks": marks, "markers": len(at), "spans": []}
    if len(at) != marks:
        return found
    busy = _united((one.begin_s, one.end_s) for one in given if MARKER not in one.name)
    for span in spans:
        begin, end = at[span.first], at[span.last]
        within = [(max(a, begin), min(b, end)) for a, b in busy if a < end and b > begin]
        found["spans"].append(
            {
                "name": span.name,
                "recorded_s": span.seconds,
                "seen_s": end - begin,
                "window_s": within[-1][1] - within[0][0] if within else 0.0,
                "busy_s": sum(b - a for a, b in within),
            }
        )
    whole = sum(b - a for a, b in busy)
    found["outside_s"] = whole - sum(one["busy_s"] for one in found["spans"])
    return found


def _united(intervals: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Join intervals, in order of begin, that overlap: streams run alongside one another."""
    joined: list[tuple[float, float]] = []
    for begin, end in intervals:
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined
