"""Recorded steps: of all ranks on one time line, whatever their clocks say."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest

from jupyter_mntrain.metrics.downsampled.samples import MOST_TRACES
from jupyter_mntrain.metrics.trace.recorded import recorded_steps, spans_of
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.plan import StepSpan, StepSpans
from jupyter_mntrain.recipe.schedules import ScheduleName
from tests.standin.jobs import history, view
from tests.standin.traces import LINK, TIMES, UPDATE_S, traces_of, walked


def of_kind(step: StepSpans, rank: int, *kinds: str) -> list[StepSpan]:
    return [one for one in step.ranks[rank] if one.kind in kinds]


@pytest.mark.parametrize("schedule", ["eager-1f1b", "gpipe", "zbv"])
def test_what_was_computed_is_drawn_when_it_was(schedule: ScheduleName) -> None:
    simulated = walked(schedule)
    step = spans_of(traces_of(simulated))
    assert step.step == 3
    assert step.seconds == pytest.approx(simulated.seconds + UPDATE_S)
    for rank, computing in enumerate(simulated.computing):
        drawn = of_kind(step, rank, "F", "B", "I", "W")
        assert [(one.kind, one.stage, one.microbatch) for one in drawn] == [
            tuple(action) for action, *_ in computing
        ]
        begins = [begin for _, begin, _ in computing]
        assert [one.begin_s for one in drawn] == pytest.approx(begins)


def test_a_rank_waits_where_it_does_nothing_else() -> None:
    step = spans_of(traces_of(walked()))
    for rank in (0, 1):
        busy = of_kind(step, rank, "F", "B", "wait", "update")
        assert busy[-1].end_s == pytest.approx(step.seconds)
        for before, one in pairwise(busy):
            assert before.end_s == pytest.approx(one.begin_s)
    first = of_kind(step, 1, "wait")[0]
    assert (first.begin_s, first.microbatch, first.peer) == (0.0, 0, 0)
    assert first.end_s == pytest.approx(TIMES.forward + sum(LINK))


def test_a_message_lasts_from_its_sender_to_its_receiver() -> None:
    step = spans_of(traces_of(walked()))
    for sender, receiver in ((0, 1), (1, 0)):
        sent, received = of_kind(step, sender, "send"), of_kind(step, receiver, "receive")
        assert len(sent) == 4
        assert [(one.begin_s, one.end_s, one.microbatch) for one in sent] == [
            (one.begin_s, one.end_s, one.microbatch) for one in received
        ]
        assert {one.peer for one in sent} == {receiver}
        # The first one is waited for, and so are all that take longer than the link needs.
        assert sent[0].end_s - sent[0].begin_s == pytest.approx(sum(LINK))


def test_one_that_nobody_waits_for_is_drawn_as_long_as_the_others() -> None:
    step = spans_of(traces_of(walked()))
    sent, used = of_kind(step, 0, "send")[1], of_kind(step, 1, "F")[1]
    assert (sent.microbatch, used.microbatch) == (1, 1)
    assert sent.end_s < used.begin_s, "it lay there before it was needed"
    assert sent.end_s - sent.begin_s == pytest.approx(sum(LINK))


@pytest.mark.parametrize("ranks", [2, 4])
def test_clocks_that_differ_do_not_move_the_bars(ranks: int) -> None:
    simulated = walked(ranks=ranks)
    right = spans_of(traces_of(simulated))
    fast = [0.0, 7.5, -3.25, 0.4][:ranks]
    step = spans_of(traces_of(simulated, clocks=fast))
    for rank in range(ranks):
        begins = [one.begin_s for one in right.ranks[rank]]
        assert [one.begin_s for one in step.ranks[rank]] == pytest.approx(begins, abs=1e-9)


def test_clocks_that_agree_with_the_messages_are_believed() -> None:
    # Here the way back is faster, which says nothing about the clocks.
    simulated, late_s = walked(), 0.005
    step = spans_of(traces_of(simulated, clocks=[0.0, late_s]))
    begin = of_kind(spans_of(traces_of(simulated)), 1, "F")[0].begin_s
    assert of_kind(step, 1, "F")[0].begin_s == pytest.approx(begin + late_s)


def test_a_rank_alone_has_no_messages() -> None:
    traces = traces_of(walked())
    step = spans_of({Rank(0): traces[Rank(0)]})
    assert of_kind(step, 0, "send", "receive") == []


def test_only_steps_that_all_ranks_have_recorded_count() -> None:
    simulated = walked()
    told = {number: traces_of(simulated, number=number) for number in (3, 5, 10)}
    cut = msgspec.structs.replace(told[10][Rank(0)], actions=())
    job = history(
        view("running", "running"),
        {
            "node1": [told[3][Rank(0)], told[5][Rank(0)], cut],
            "node2": [told[5][Rank(1)], told[10][Rank(1)]],
        },
    )
    steps = recorded_steps(job)
    assert [*steps] == [5, 10]
    assert spans_of(steps[10]).ranks[0] == ()


def test_the_newest_few_are_kept() -> None:
    simulated = walked()
    told = [traces_of(simulated, number=number) for number in range(MOST_TRACES + 4)]
    job = history(
        view("running", "running"),
        {f"node{rank + 1}": [one[Rank(rank)] for one in told] for rank in (0, 1)},
    )
    assert [*recorded_steps(job)] == list(range(4, MOST_TRACES + 4))
