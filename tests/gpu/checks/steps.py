"""Checks 5, 6 and 8: one step of a model that keeps a card busy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from statistics import median
from typing import Any

from tests.gpu.findings import Bench, Item, failed, judged, skipped
from tests.gpu.ranks import Case, run_cases
from tests.gpu.settings import case
from tests.gpu.watches import PROFILED, STEADY

NEEDS_CARD = "needs a GPU"
SPANS = 0.05
"""Between a recorded span and what the profiler saw; and of kernels' time, outside of all spans."""
SHORT_S = 1e-4
"""Of short spans, by which they may be apart anyway: several launches of a kernel."""
WALL = 0.03
LEAST_OF_ESTIMATE, MOST_OF_ESTIMATE = 0.9, 1.05
"""Of a peak of the memory. More than was estimated is what ends a run that was said to fit."""
ATTENTION = re.compile(r"flash|fmha|cudnn.*(attn|sdpa|attention)|sdpa", re.IGNORECASE)
OPTIMIZER = re.compile(r"fused_?adam|FusedAdam", re.IGNORECASE)

_MODEL = (
    *("model.preset=llama-160m", "model.dtype=bfloat16", "optimizer.precision=plain"),
    *("data.sequence_length=1024", "train.batch_size=32", "pipeline.microbatches=4"),
    f"train.steps={PROFILED + 1}",
)


def check_waits(bench: Bench) -> Iterator[Item]:
    """torch warns of each operation that waits for the GPU."""
    yield from _looked_at(bench, "waits", _no_waits)


def check_timing(bench: Bench) -> Iterator[Item]:
    yield from _looked_at(bench, "profile", _times)


def check_kernels(bench: Bench) -> Iterator[Item]:
    yield from _looked_at(bench, "profile", _kernels)


def _looked_at(bench: Bench, watch: str, judge: Any) -> Iterator[Item]:
    if not bench.is_real:
        yield skipped("one step", NEEDS_CARD)
        return
    one: Case = case(bench, "one step", _MODEL, watch=watch)
    answer = run_cases(bench, [one])["one step"]
    if answer.error:
        yield failed("one step", answer.error)
        return
    yield from judge(answer.first)


def _no_waits(told: dict[str, Any]) -> Iterator[Item]:
    places = told["waits"]
    problem = f"it waits at {', '.join(places)}" if places else None
    yield judged("no waits", problem, waits=len(places))


def _times(told: dict[str, Any]) -> Iterator[Item]:
    steady = told["steps"][STEADY]
    spans = median(one["compute_s"] + one["optimizer_s"] for one in steady)
    yield from judged_spans(told["timeline"], spans)
    parts = median(one["compute_s"] + one["optimizer_s"] + one["wait_s"] for one in steady)
    whole = median(one["step_s"] for one in steady)
    yield judged(
        "computing, optimizer and waiting against the step",
        _apart(parts, whole, WALL),
        parts_ms=parts * 1e3,
        step_ms=whole * 1e3,
    )
    yield judged_memory(told["peak_bytes"], told["estimate_bytes"])


def judged_memory(peak: float, estimate: float) -> Item:
    """Judge a peak of the memory by its estimate, in both directions."""
    is_near = LEAST_OF_ESTIMATE * estimate <= peak <= MOST_OF_ESTIMATE * estimate
    return judged(
        "peak of the memory against the estimate",
        None if is_near else f"{peak / 1e9:.2f} GB, estimated {estimate / 1e9:.2f} GB",
        peak_GB=peak / 1e9,
        estimate_GB=estimate / 1e9,
    )


def judged_spans(timeline: dict[str, Any], steady_s: float) -> Iterator[Item]:
    """Judge spans by the profiler's trace of the same step.

    Args:
        steady_s: all spans of a step without the profiler, which slows the host.
    """
    name = "recorded spans against the profiler's clock"
    if timeline["markers"] != timeline["marks"]:
        yield failed(name, f"the trace has {timeline['markers']} of {timeline['marks']} markers")
        return
    spans = timeline["spans"]
    recorded, seen, window, busy = (
        sum(one[key] for one in spans) for key in ("recorded_s", "seen_s", "window_s", "busy_s")
    )
    off = [one for one in spans if _span_apart(one)]
    worst = max(off, key=lambda one: abs(one["recorded_s"] - one["seen_s"]), default=None)
    yield judged(
        name,
        f"{worst['name']}: {_span_apart(worst)}" if worst else None,
        recorded_ms=recorded * 1e3,
        seen_ms=seen * 1e3,
        first_to_last_kernel_ms=window * 1e3,
        steady_ms=steady_s * 1e3,
        kernels_ms=busy * 1e3,
        idle=_idle(busy, steady_s),
    )
    outside = timeline["outside_s"]
    is_much = outside > SPANS * (busy + outside)
    yield judged(
        "kernels within the recorded spans",
        f"{outside * 1e3:.1f} ms of kernels ran outside of them" if is_much else None,
        outside_ms=outside * 1e3,
    )


def _span_apart(span: dict[str, Any]) -> str | None:
    recorded, seen = span["recorded_s"], span["seen_s"]
    return None if abs(recorded - seen) <= SHORT_S else _apart(recorded, seen, SPANS)


def _idle(busy_s: float, steady_s: float) -> str:
    """Say how much of a step's spans the card spent without work."""
    share = max(0.0, 1 - busy_s / steady_s)
    return f"{share:.0%} of the time" + (": the host is too slow" if share > SPANS else "")


def _apart(found: float, expected: float, most: float) -> str | None:
    if abs(found - expected) <= most * expected:
        return None
    return f"{found * 1e3:.1f} ms against {expected * 1e3:.1f} ms (allowed: {most:.0%})"


def _kernels(told: dict[str, Any]) -> Iterator[Item]:
    for what, pattern in (("attention", ATTENTION), ("optimizer", OPTIMIZER)):
        found = [name for name in told["kernels"] if pattern.search(name)]
        shown = found[0][:60] if found else ""
        problem = None if found else f"none of {len(told['kernels'])} kernels is {what}'s fast one"
        yield judged(f"a fast kernel of the {what}", problem, kernel=shown)
