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
"""Between recorded spans and the kernels' time, of the kernels' time."""
WALL = 0.03
LEAST_OF_ESTIMATE = 0.9
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
    kernels = told["kernel_s"]
    yield judged(
        "recorded spans against the kernels of the profiler",
        _apart(spans, kernels, SPANS),
        spans_ms=spans * 1e3,
        kernels_ms=kernels * 1e3,
    )
    parts = median(one["compute_s"] + one["optimizer_s"] + one["wait_s"] for one in steady)
    whole = median(one["step_s"] for one in steady)
    yield judged(
        "computing, optimizer and waiting against the step",
        _apart(parts, whole, WALL),
        parts_ms=parts * 1e3,
        step_ms=whole * 1e3,
    )
    peak, estimate = told["peak_bytes"], told["estimate_bytes"]
    few = peak < LEAST_OF_ESTIMATE * estimate
    yield judged(
        "peak of the memory against the estimate",
        f"{peak / 1e9:.2f} GB of {estimate / 1e9:.2f} GB" if few else None,
        peak_GB=peak / 1e9,
        estimate_GB=estimate / 1e9,
    )


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
