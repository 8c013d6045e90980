"""Spans of a predicted step: they are those of the walk, and fill each rank's step."""

from __future__ import annotations

import pytest

from jupyter_mntrain.model.records.plan import LinkSpeed, StepSpan
from jupyter_mntrain.plan.prediction.simulator import (
    LinkTimes,
    Simulated,
    StageTimes,
    predicted_spans,
    simulate,
)
from jupyter_mntrain.recipe.instructions import make_order, stages_of
from jupyter_mntrain.recipe.schedules import ScheduleName

LATENCY_S = 0.25
BETWEEN = {(0, 1): LinkSpeed(4.0, LATENCY_S), (1, 0): LinkSpeed(4.0, LATENCY_S)}


def walk(schedule: ScheduleName, per_rank: int) -> Simulated:
    return simulate(
        make_order(schedule, 2, 4, stages_per_rank=per_rank),
        stages_of(schedule, 2, per_rank),
        [StageTimes(forward=1.0, backward=2.0, inputs=1.0, weights=1.0)] * 2 * per_rank,
        lambda _sender, _receiver: LinkTimes(LATENCY_S, 0.5),
    )


def duration(spans: tuple[StepSpan, ...], *kinds: str) -> float:
    return sum(span.end_s - span.begin_s for span in spans if span.kind in kinds)


@pytest.mark.parametrize(("schedule", "per_rank"), [("eager-1f1b", 1), ("zbv", 2)])
def test_a_rank_computes_waits_or_updates_at_any_time(
    schedule: ScheduleName, per_rank: int
) -> None:
    walked = walk(schedule, per_rank)
    step = predicted_spans(walked, BETWEEN, update_s=3.0)
    assert step.seconds == pytest.approx(walked.seconds + 3.0)
    for rank, spans in enumerate(step.ranks):
        assert duration(spans, "F", "B", "I", "W") == pytest.approx(walked.computing_s(rank))
        busy = [span for span in spans if span.kind not in ("send", "receive")]
        assert duration(tuple(busy), *{span.kind for span in busy}) == pytest.approx(step.seconds)
        begins = [span.begin_s for span in spans]
        assert begins == sorted(begins)


def test_a_message_is_received_a_latency_after_it_is_sent() -> None:
    sender, receiver = predicted_spans(walk("1f1b", 1), BETWEEN).ranks
    sent = [span for span in sender if span.kind == "send"]
    received = [span for span in receiver if span.kind == "receive"]
    assert len(sent) == len(received) == 4
    for one, other in zip(sent, received, strict=True):
        assert other.begin_s == pytest.approx(one.begin_s + LATENCY_S)
        assert (one.peer, other.peer) == (1, 0)


def test_messages_within_a_node_are_left_out() -> None:
    step = predicted_spans(walk("1f1b", 1), {})
    assert not [s for spans in step.ranks for s in spans if s.kind in ("send", "receive")]


def test_gradients_are_accumulated_over_passes_one_after_another() -> None:
    walked = walk("1f1b", 1)
    once, twice = (predicted_spans(walked, {}, passes=n, microbatches=4) for n in (1, 2))
    assert twice.seconds == pytest.approx(2 * once.seconds)
    forward = [span.microbatch for span in twice.ranks[0] if span.kind == "F"]
    assert forward == list(range(8))
