"""Chrome trace: steps in the Trace Event Format, which Perfetto and chrome://tracing open.

Of that format: complete events (``ph`` "X") with ``ts`` and ``dur`` in µs, and metadata events
(``ph`` "M") that name processes and threads. Each rank is a process; what it computes, sends and
receives are its threads. Events of one thread must not overlap, so messages that do are on several.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from jupyter_mntrain.model.records.plan import SpanKind, StepSpan, StepSpans

WORDS: Final[dict[SpanKind, str]] = {
    "F": "forward",
    "B": "backward",
    "I": "input gradient",
    "W": "weight gradient",
    "update": "optimizer",
    "wait": "wait",
    "send": "send",
    "receive": "receive",
}
"""Names of span kinds, in the order of a legend."""

THREADS: Final = (
    ("computing", frozenset[SpanKind]({"F", "B", "I", "W", "update", "wait"})),
    ("send", frozenset[SpanKind]({"send"})),
    ("receive", frozenset[SpanKind]({"receive"})),
)


def chrome_trace(steps: Sequence[tuple[str, StepSpans, Sequence[str]]]) -> dict[str, Any]:
    """Return steps as a trace, one below the other, all starting at 0.

    Args:
        steps: of each its title, such as ``predicted``, its spans, and its ranks' names.
    """
    events: list[dict[str, Any]] = []
    pid = 0
    for title, spans, names in steps:
        for name, rank in zip(names, spans.ranks, strict=True):
            pid += 1
            events += _process(pid, f"{name}, {title}", rank)
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _process(pid: int, name: str, spans: Sequence[StepSpan]) -> Iterator[dict[str, Any]]:
    yield _named("process_name", pid, 0, name)
    order = {"sort_index": pid}
    yield {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": order}
    tid = 0
    for thread, kinds in THREADS:
        for lane in _lanes([span for span in spans if span.kind in kinds]):
            tid += 1
            yield _named("thread_name", pid, tid, thread)
            for span in lane:
                yield _complete(span, pid, tid)


def _named(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}


def _lanes(spans: Sequence[StepSpan]) -> list[list[StepSpan]]:
    """Divide spans among as few lanes as possible without overlaps."""
    lanes: list[list[StepSpan]] = []
    for span in sorted(spans, key=lambda one: (one.begin_s, one.end_s)):
        free = next((lane for lane in lanes if _us(lane[-1].end_s) <= _us(span.begin_s)), None)
        if free is None:
            lanes.append([span])
        else:
            free.append(span)
    return lanes


def _complete(span: StepSpan, pid: int, tid: int) -> dict[str, Any]:
    known = {"stage": span.stage, "microbatch": span.microbatch, "peer": span.peer}
    begin = _us(span.begin_s)
    number = "" if span.microbatch is None or span.kind == "wait" else f" {span.microbatch + 1}"
    return {
        "ph": "X",
        "name": f"{WORDS[span.kind]}{number}",
        "cat": span.kind,
        "pid": pid,
        "tid": tid,
        "ts": begin,
        "dur": round(_us(span.end_s) - begin, 3),
        "args": {name: value for name, value in known.items() if value is not None},
    }


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 3)
