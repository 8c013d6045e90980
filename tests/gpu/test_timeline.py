"""Check 6 compares recorded spans with a trace of the profiler: here with made-up ones."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_mntrain.train.pipeline.stopwatch import Timed
from tests.gpu.checks.steps import judged_memory, judged_spans
from tests.gpu.findings import Item
from tests.gpu.timeline import MARKER, Kernel, Span, beside_kernels, recorded_spans

SPAN_S, KERNELS, TICK_S = 0.010, 10, 2e-6
NAMES = ("forward 0", "loss", "backward 0", "the update")


def trace(busy: float = 1.0, offset_s: float = 0.0) -> list[Kernel]:
    """Spans of :data:`SPAN_S` one after another, each between two markers.

    Args:
        busy: share of each kernel's turn in which it runs; then the card waits for the host.
        offset_s: from the begin of a span to that of its first kernel.
    """
    kernels = []
    for number in range(len(NAMES)):
        begin = number * 2 * SPAN_S
        ends = (begin, begin + SPAN_S)
        kernels += [Kernel(f"at::{MARKER}(long)", end, end + TICK_S) for end in ends]
        turn = SPAN_S / KERNELS
        for each in range(KERNELS):
            start = begin + each * turn + offset_s
            kernels.append(Kernel("gemm", start, start + turn * busy))
    return kernels


def spans(seconds: float = SPAN_S) -> list[Span]:
    return [Span(name, seconds, 2 * at, 2 * at + 1) for at, name in enumerate(NAMES)]


def judge(recorded: list[Span], kernels: list[Kernel], steady_s: float = 0.040) -> dict[str, Item]:
    told = beside_kernels(recorded, 2 * len(NAMES), kernels)
    return {item.name.partition(" ")[0]: item for item in judged_spans(told, steady_s)}


def test_a_busy_card() -> None:
    found = judge(spans(), trace(busy=0.99))
    assert [item.state for item in found.values()] == ["held", "held"]
    assert found["recorded"].figures["kernels_ms"] == pytest.approx(39.6)
    assert found["recorded"].figures["idle"] == "1% of the time"


def test_a_card_that_waits_for_its_host_is_no_fault_of_the_spans() -> None:
    found = judge(spans(), trace(busy=0.63))
    assert [item.state for item in found.values()] == ["held", "held"]
    figures = found["recorded"].figures
    assert figures["idle"] == "37% of the time: the host is too slow"
    assert figures["first_to_last_kernel_ms"] == pytest.approx(40 - 4 * 0.37)


def test_spans_of_another_clock_fail() -> None:
    found = judge(spans(SPAN_S * 1.6), trace())
    assert found["recorded"].state == "failed"
    assert found["recorded"].reason.endswith(": 16.0 ms against 10.0 ms (allowed: 5%)")
    assert found["kernels"].state == "held"


def test_one_wrong_span_is_named_though_the_sum_is_right() -> None:
    given = spans()
    given[1] = given[1]._replace(seconds=SPAN_S * 0.8)
    given[2] = given[2]._replace(seconds=SPAN_S * 1.2 - 1e-6)
    assert judge(given, trace())["recorded"].reason.startswith("loss: 8.0 ms against 10.0 ms")


def test_spans_that_end_before_their_kernels_fail() -> None:
    found = judge(spans(), trace(offset_s=SPAN_S / 2))
    assert found["kernels"].state == "failed"
    assert found["kernels"].reason == "20.0 ms of kernels ran outside of them"


def test_short_spans_may_be_a_few_launches_apart() -> None:
    short = [span._replace(seconds=SPAN_S + 9e-5) for span in spans()]
    assert judge(short, trace())["recorded"].state == "held"


def test_kernels_beside_one_another_count_once() -> None:
    twice = [one for one in trace() if MARKER not in one.name]
    told = beside_kernels(spans(), 2 * len(NAMES), [*trace(), *twice])
    assert [one["busy_s"] for one in told["spans"]] == pytest.approx([SPAN_S] * 4)


def test_a_trace_without_its_markers_fails() -> None:
    found = judge(spans(), trace()[2:])
    assert list(found) == ["recorded"]
    assert found["recorded"].reason == "the trace has 6 of 8 markers"


def test_spans_of_a_step_are_found_by_their_marks() -> None:
    clock = count()
    marks = [float(next(clock)) for _ in range(8)]
    timed = [Timed(marks[1], marks[2], "F", 0, 3), Timed(marks[2], marks[3])]
    moments = SimpleNamespace(passed=marks[4], squared=marks[5], agreed=marks[6], updated=marks[7])
    step = SimpleNamespace(metered=SimpleNamespace(timed=timed), marks=moments)
    stopwatch: Any = SimpleNamespace(seconds=lambda begin, end: end - begin)
    assert recorded_spans(step, marks, stopwatch) == [
        Span("forward 3", 1.0, 1, 2),
        Span("loss", 1.0, 2, 3),
        Span("the gradient's norm", 1.0, 4, 5),
        Span("the update", 1.0, 6, 7),
    ]


@pytest.mark.parametrize(
    ("peak", "state"),
    [
        (4.9, "failed"),
        (5.2, "held"),
        (5.68, "held"),
        (5.85, "held"),
        (6.0, "failed"),
        (9, "failed"),
    ],
)
def test_a_peak_of_the_memory_is_judged_in_both_directions(peak: float, state: str) -> None:
    assert judged_memory(peak * 1e9, 5.68e9).state == state
