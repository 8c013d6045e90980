"""Chain: equal to the simulator, whatever the times, links and counts; long steps grow evenly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_mntrain.plan.prediction.simulator import (
    CodingTimes,
    LinkTimes,
    StageTimes,
    simulate,
)
from jupyter_mntrain.plan.prediction.step import chain_seconds, steady_seconds
from jupyter_mntrain.recipe.instructions import Counts, StageAction, Stages, eager_zero_bubble

SECONDS = st.floats(0.1, 3.0)
LINK = st.builds(LinkTimes, st.sampled_from([0.0, 0.3, 2.0]), st.floats(0.0, 2.0))
SHARE = st.sampled_from([1.0, 0.5, 0.27])
CODING = st.builds(CodingTimes, *[st.sampled_from([0.0, 0.2])] * 4)

Pipeline = tuple[Counts, list[StageTimes], list[LinkTimes], list[float], int]
"""Counts, times, links and shares of messages, onward and then back, and microbatches."""


@st.composite
def pipelines(draw: st.DrawFn) -> Pipeline:
    stages, microbatches = draw(st.integers(1, 5)), draw(st.integers(1, 9))
    counts = st.integers(1, microbatches)
    ahead = sorted((draw(counts) for _ in range(stages)), reverse=True)
    kept = (draw(st.integers(0, 3)) for _ in range(stages))
    times = [draw(st.builds(StageTimes, *[SECONDS] * 4, CODING)) for _ in range(stages)]
    links = [draw(LINK) for _ in range(2 * (stages - 1))]
    shares = [draw(SHARE) for _ in links]
    return Counts(tuple(ahead), tuple(kept)), times, links, shares, microbatches


@given(pipelines())
def test_it_is_what_the_simulator_walks(pipeline: Pipeline) -> None:
    counts, times, links, shares, microbatches = pipeline
    ends = len(times) - 1

    def link(sender: int, receiver: int) -> LinkTimes:
        return links[sender] if receiver > sender else links[ends + receiver]

    def share(received: StageAction) -> float:
        is_onward = received.kind == "RECV_F"
        return shares[received.stage - 1] if is_onward else shares[ends + received.stage]

    walked = simulate(
        eager_zero_bubble(counts.ahead, counts.deferred, microbatches),
        Stages(len(times)),
        times,
        link,
        share_of=share,
    )
    sent = [
        one._replace(occupied=part * one.occupied) for one, part in zip(links, shares, strict=True)
    ]
    found = chain_seconds(counts, times, sent[:ends], sent[ends:], microbatches)
    assert found == pytest.approx(walked.seconds)


@pytest.mark.parametrize("latency", [0.0, 0.7, 5.0])
@pytest.mark.parametrize("occupied", [0.1, 4.0])
@pytest.mark.parametrize("deferred", [(0, 0, 0, 0), (0, 1, 2, 3)])
def test_a_long_step_is_taken_from_its_begin(
    latency: float, occupied: float, deferred: tuple[int, ...]
) -> None:
    counts = Counts((6, 5, 3, 1), deferred)
    times = [StageTimes(1.0, 2.0, 1.0, 1.0 + 0.1 * stage) for stage in range(4)]
    links = [LinkTimes(latency, occupied)] * 3
    found = steady_seconds(counts, times, links, links, 300)
    assert found == pytest.approx(chain_seconds(counts, times, links, links, 300), rel=1e-3)
