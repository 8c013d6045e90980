"""Chrome trace: valid by the Trace Event Format, and nothing overlaps on a thread."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest

from jupyter_mntrain.metrics.trace.recorded import spans_of
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.plan import StepSpan, StepSpans
from jupyter_mntrain.recipe.schedules import ScheduleName
from jupyter_mntrain.show.exports.chrome_trace import chrome_trace
from tests.standin.traces import traces_of, walked


def exported(*steps: tuple[str, StepSpans, tuple[str, ...]]) -> list[dict[str, Any]]:
    written = json.loads(json.dumps(chrome_trace(steps)))
    assert written["displayTimeUnit"] == "ms"
    events: list[dict[str, Any]] = written["traceEvents"]
    for event in events:
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert event["ph"] in {"M", "X"}
        if event["ph"] == "X":
            assert event["ts"] >= 0
            assert event["dur"] >= 0
        else:
            assert event["name"] in {"process_name", "thread_name", "process_sort_index"}
    return events


@pytest.mark.parametrize("schedule", ["eager-1f1b", "zbv"])
def test_spans_of_a_thread_follow_one_another(schedule: ScheduleName) -> None:
    step = spans_of(traces_of(walked(schedule)))
    events = exported(("step 3", step, ("r0 a", "r1 b")))
    threads: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            threads[event["pid"], event["tid"]].append(event)
    for found in threads.values():
        for before, one in pairwise(found):
            assert before["ts"] <= one["ts"]
            assert before["ts"] + before["dur"] <= one["ts"] + 0.01
    assert sum(map(len, threads.values())) == sum(map(len, step.ranks))
    named = {(one["pid"], one["tid"]) for one in events if one["name"] == "thread_name"}
    assert named == threads.keys()


def test_a_span_has_its_microseconds_its_microbatch_and_its_peer() -> None:
    rank = (StepSpan("F", 0.25, 0.5, 1, 2), StepSpan("receive", 0.125, 0.25, 1, 2, Rank(0)))
    events = exported(("predicted", StepSpans(1.0, (rank,)), ("r0 a",)))
    forward, received = (event for event in events if event["ph"] == "X")
    assert (forward["name"], forward["ts"], forward["dur"]) == ("forward 3", 250_000, 250_000)
    assert forward["args"] == {"stage": 1, "microbatch": 2}
    assert (received["name"], received["args"]["peer"]) == ("receive 3", 0)


def test_messages_at_the_same_time_are_on_several_threads() -> None:
    sent = tuple(StepSpan("send", begin, begin + 0.5, 0, 0, Rank(1)) for begin in (0.0, 0.25, 0.5))
    events = exported(("step 1", StepSpans(1.0, (sent,)), ("r0 a",)))
    assert [one["tid"] for one in events if one["ph"] == "X"] == [1, 1, 2]


def test_steps_beside_each_other_are_processes_apart() -> None:
    step = spans_of(traces_of(walked()))
    names = ("r0 a", "r1 b")
    events = exported(("predicted", step, names), ("step 3", step, names))
    named = [one["args"]["name"] for one in events if one["name"] == "process_name"]
    assert named == ["r0 a, predicted", "r1 b, predicted", "r0 a, step 3", "r1 b, step 3"]
    assert {one["pid"] for one in events} == {1, 2, 3, 4}
