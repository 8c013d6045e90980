"""Simulator: known formulas, the order of queues, and what no step can beat."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_mntrain.plan.prediction.simulator import (
    DeadlockError,
    LinkTimes,
    Pair,
    QueueOf,
    Simulated,
    StageTimes,
    simulate,
    unordered,
)
from jupyter_mntrain.recipe.instructions import (
    StageAction,
    Stages,
    choose_counts,
    eager_zero_bubble,
    make_order,
    stages_of,
)
from jupyter_mntrain.recipe.schedules import KINDS, ScheduleName, in_flight
from jupyter_mntrain.recipe.sections import PipelineSection, Recipe

TIMES = StageTimes(forward=1.0, backward=2.0, inputs=1.0, weights=1.0)
ONE_STAGE: tuple[ScheduleName, ...] = ("gpipe", "1f1b")


def per_direction(_: StageAction, pair: Pair) -> Hashable:
    return pair


def per_pair(_: StageAction, pair: Pair) -> Hashable:
    return frozenset(pair)


def per_rank(_action: StageAction, _pair: Pair) -> Hashable:
    return "all"


def run(
    schedule: ScheduleName,
    ranks: int,
    microbatches: int,
    link: LinkTimes,
    *,
    queue_of: QueueOf = unordered,
    ahead: tuple[int, ...] | None = None,
    times: tuple[StageTimes, ...] | None = None,
) -> Simulated:
    per_rank = KINDS[schedule].stages_per_rank
    return simulate(
        make_order(schedule, ranks, microbatches, stages_per_rank=per_rank, ahead=ahead),
        stages_of(schedule, ranks, per_rank),
        times or (TIMES,) * ranks * per_rank,
        lambda _sender, _receiver: link,
        queue_of,
        is_batched=schedule in ONE_STAGE,
    )


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "eager-1f1b"])
@pytest.mark.parametrize(("ranks", "microbatches"), [(2, 4), (4, 8), (3, 30)])
def test_without_links_idle_time_is_that_of_the_formula(
    schedule: ScheduleName, ranks: int, microbatches: int
) -> None:
    step = run(schedule, ranks, microbatches, LinkTimes())
    assert step.seconds == pytest.approx(3.0 * (microbatches + ranks - 1))
    for rank in range(ranks):
        assert step.bubble(rank) == pytest.approx((ranks - 1) / (microbatches + ranks - 1))


def test_interleaving_divides_the_idle_time_by_the_stages_of_a_rank() -> None:
    step = run("interleaved-1f1b", 4, 16, LinkTimes(), times=(StageTimes(0.5, 1.0, 0.5, 0.5),) * 8)
    assert step.seconds == pytest.approx(3.0 * 16 + 3.0 * 3 / 2)


def test_zb_v_has_no_bubble_where_its_parts_take_equally_long() -> None:
    ranks, microbatches = 4, 16
    step = run("zbv", ranks, microbatches, LinkTimes())
    ideal = 2 * 3.0 * microbatches
    assert ideal < step.seconds <= ideal + 2 * ranks


@pytest.mark.parametrize(
    ("occupied", "by_direction", "by_pair", "by_rank"),
    [(0.3, 203, 203, 204), (1.0, 207, 207, 274), (2.0, 225, 282, 541)],
)
def test_messages_that_share_a_queue_cost_eager_1f1b_its_gain(
    occupied: float, by_direction: float, by_pair: float, by_rank: float
) -> None:
    """NCCL runs the messages of a communicator one after another."""
    link = LinkTimes(0.0, occupied)
    ahead = in_flight((3.0,) * 4, (2 * occupied,) * 3, 64, (99,) * 4)
    assert ahead[0] > 4
    found = [
        run("eager-1f1b", 4, 64, link, queue_of=queue, ahead=ahead).seconds
        for queue in (per_direction, per_pair, per_rank)
    ]
    assert found == pytest.approx([by_direction, by_pair, by_rank], abs=0.5)


@pytest.mark.parametrize("schedule", KINDS)
@pytest.mark.parametrize("queue_of", [unordered, per_direction])
def test_no_schedule_blocks_itself(schedule: ScheduleName, queue_of: QueueOf) -> None:
    for ranks, microbatches in ((2, 4), (3, 6), (4, 8), (4, 16)):
        step = run(schedule, ranks, microbatches, LinkTimes(0.1, 0.2), queue_of=queue_of)
        stages = ranks * KINDS[schedule].stages_per_rank
        assert sum(map(step.computing_s, range(ranks))) == pytest.approx(
            3.0 * stages * microbatches
        )


def test_ranks_that_wait_for_each_other_are_named() -> None:
    first = (StageAction("SEND_F", 0, 0), StageAction("AWAIT_F", 0, 0), StageAction("RECV_B", 0, 0))
    second = (
        StageAction("SEND_B", 1, 0),
        StageAction("AWAIT_B", 1, 0),
        StageAction("RECV_F", 1, 0),
    )
    with pytest.raises(DeadlockError, match=r"rank 0 waits in AWAIT_F .*; rank 1 waits in AWAIT_B"):
        simulate([first, second], Stages(2), (TIMES,) * 2, lambda *_: LinkTimes())


def test_a_link_is_one_message_wide_in_each_direction() -> None:
    step = run("eager-1f1b", 2, 4, LinkTimes(0.0, 5.0), ahead=(4, 1))
    forward, back = step.messages[0, 1], step.messages[1, 0]
    for spans in (forward, back):
        assert len(spans) == 4
        assert all(before.end_s <= after.begin_s for before, after in pairwise(spans))
    assert back[0].begin_s < forward[-1].end_s, "the other direction waits for nothing"
    assert step.busy((0, 1)) == pytest.approx(20.0 / step.seconds)


@given(
    st.sampled_from(sorted(KINDS)),
    st.integers(2, 4),
    st.integers(1, 3),
    st.lists(st.floats(0.1, 5.0), min_size=8, max_size=8),
    st.floats(0.0, 3.0),
    st.floats(0.0, 3.0),
)
def test_no_step_is_shorter_than_its_slowest_rank_or_its_busiest_link(
    schedule: ScheduleName,
    ranks: int,
    rounds: int,
    seconds: list[float],
    latency: float,
    occupied: float,
) -> None:
    stages = ranks * KINDS[schedule].stages_per_rank
    times = tuple(StageTimes(one, 2 * one, one, one) for one in seconds[:stages])
    microbatches = rounds * stages
    step = run(schedule, ranks, microbatches, LinkTimes(latency, occupied), times=times)
    for rank in range(ranks):
        assert step.computing_s(rank) <= step.seconds * (1 + 1e-9)
    for link in step.messages:
        assert step.busy(link) <= 1 + 1e-9
    once = sum(3 * one for one in seconds[:stages])
    assert step.seconds >= once * (1 - 1e-9), "one microbatch passes all stages and comes back"


@pytest.mark.parametrize(
    "link", [LinkTimes(), LinkTimes(0.05, 0.05), LinkTimes(0.5, 0.5), LinkTimes(0.0, 2.0)]
)
@pytest.mark.parametrize(("ranks", "microbatches"), [(2, 4), (2, 16), (4, 8), (4, 16), (8, 16)])
def test_with_the_counts_of_the_trainer_eager_zero_bubble_is_never_slower(
    ranks: int, microbatches: int, link: LinkTimes
) -> None:
    def seconds(schedule: ScheduleName) -> float:
        pipeline = PipelineSection(schedule=schedule, microbatches=microbatches)
        links, fits = [2 * sum(link)] * (ranks - 1), [microbatches] * ranks
        counts = choose_counts(Recipe(pipeline=pipeline), [3.0] * ranks, links, fits)
        orders = eager_zero_bubble(*counts, microbatches)
        return simulate(orders, Stages(ranks), (TIMES,) * ranks, lambda *_: link).seconds

    # Were receives begun later for the weights' sake, it would be 1.18 times as long.
    assert seconds("eager-zero-bubble") < seconds("eager-1f1b")


@pytest.mark.parametrize(
    ("ranks", "microbatches", "share"), [(2, 4, 0.92), (2, 8, 0.96), (4, 8, 0.89), (8, 16, 0.87)]
)
def test_gradients_of_weights_that_are_put_off_fill_idle_time(
    ranks: int, microbatches: int, share: float
) -> None:
    orders = eager_zero_bubble(range(ranks, 0, -1), range(ranks), microbatches)
    step = simulate(orders, Stages(ranks), (TIMES,) * ranks, lambda *_: LinkTimes())
    assert 3.0 * microbatches / step.seconds == pytest.approx(share, abs=0.005)
    eager = run("eager-1f1b", ranks, microbatches, LinkTimes())
    assert step.seconds < eager.seconds
    for mine, theirs in zip(step.computing, eager.computing, strict=True):
        back = [span.action.microbatch for span in mine if span.action.kind in "BI"]
        assert back == [span.action.microbatch for span in theirs if span.action.kind == "B"]
        weights = [span.action.microbatch for span in mine if span.action.kind == "W"]
        assert weights in ([], list(range(microbatches)))


def test_over_one_connection_word_that_a_message_is_awaited_comes_behind_what_is_sent() -> None:
    """1F1B on two ranks: the last rank sends a gradient, then begins to receive."""
    occupied, buffered, microbatches = 10.0, 5.0, 16
    orders = make_order("1f1b", 2, microbatches)
    apart, together = (
        simulate(
            orders,
            Stages(2),
            (TIMES,) * 2,
            lambda *_: LinkTimes(0.0, occupied, buffered),
            is_one_connection=is_one,
        ).seconds
        / microbatches
        for is_one in (False, True)
    )
    assert apart == pytest.approx(occupied + 3.0, rel=0.1), "both directions at once"
    assert together == pytest.approx(2 * occupied + 3.0, rel=0.1), "one after the other"
