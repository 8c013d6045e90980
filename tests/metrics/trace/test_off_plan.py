"""Off plan: the reason why a step is not as long as predicted, and none where it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from jupyter_mntrain.metrics.history import JobHistory
from jupyter_mntrain.metrics.summary import JobEvent, OffPlan, OffPlanCause
from jupyter_mntrain.metrics.trace.off_plan import TOLERANCE, Measured, measured_of, off_plan
from jupyter_mntrain.metrics.trace.recorded import (
    Pair,
    RecentTransfers,
    SentMessages,
    transfers_of,
)
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.metrics import RankTrace
from jupyter_mntrain.plan.prediction.simulated import LinkTimes
from tests.standin.jobs import history, step, view
from tests.standin.plans import MESSAGES, plan_of
from tests.standin.traces import LINK, traces_of, walked
from tests.standin.training import sample_job

PLAN = plan_of()
R0, R1 = Rank(0), Rank(1)
AS_PLANNED = {0: 1.0, 1: 1.0}
ON_LINK = {(R0, R1): SentMessages(MESSAGES, sum(LINK)), (R1, R0): SentMessages(MESSAGES, sum(LINK))}


def test_a_step_about_as_long_as_planned_needs_no_reason() -> None:
    for factor in (1.0, 1 + 0.9 * TOLERANCE, 1 - 0.9 * TOLERANCE):
        measured = Measured(factor * PLAN.step_s, {0: 9.0})
        assert off_plan(PLAN, measured) is None


def test_a_rank_that_computes_slower_is_named_with_how_much() -> None:
    found = off_plan(PLAN, Measured(1.8, {0: 1.0, 1: 1.5}, ON_LINK))
    assert found == OffPlan(1.8 / 1.2, (OffPlanCause("computing", 1.5, rank=R1),))


def test_a_guessed_speed_is_said_to_be_one() -> None:
    found = off_plan(plan_of(is_measured=False), Measured(6.0, {0: 5.0, 1: 1.0}))
    assert found is not None
    assert found.causes == (OffPlanCause("computing", 5.0, rank=R0, is_guessed=True),)


def test_a_slower_link_is_named_by_its_direction() -> None:
    slow = {**ON_LINK, (R1, R0): SentMessages(MESSAGES, 3 * sum(LINK))}
    found = off_plan(PLAN, Measured(1.8, AS_PLANNED, slow))
    assert found is not None
    (cause,) = found.causes
    assert (cause.kind, cause.rank, cause.peer) == ("link", 1, 0)
    assert cause.ratio == pytest.approx(3.0)


def test_what_costs_most_seconds_is_first_and_traffic_of_others_last() -> None:
    slow = {**ON_LINK, (R0, R1): SentMessages(MESSAGES, 2 * sum(LINK))}
    traffic = {"muthur": 0.4, "elsewhere": 0.9}
    found = off_plan(PLAN, Measured(3.0, {0: 1.3, 1: 2.5}, slow, traffic))
    assert found is not None
    told = [(one.kind, one.rank, one.node) for one in found.causes]
    assert told == [
        ("computing", 1, None),
        ("computing", 0, None),
        ("link", 0, None),
        ("traffic", None, "muthur"),
    ]


def test_a_much_slower_link_is_no_cause_where_its_messages_are_short() -> None:
    short = {**ON_LINK, (R0, R1): SentMessages(MESSAGES, 5 * sum(LINK))}
    more_s = 4 * MESSAGES * sum(LINK)
    measured = Measured(1.2 + 11 * more_s, {0: 1.0 + 10 * more_s, 1: 1.0}, short)
    found = off_plan(PLAN, measured)
    assert found is not None
    assert [one.kind for one in found.causes] == ["computing"]


def test_ranks_that_only_wait_longer_have_no_cause() -> None:
    assert off_plan(PLAN, Measured(1.8, AS_PLANNED, ON_LINK)) == OffPlan(1.8 / 1.2)
    assert off_plan(PLAN, Measured(1.8)) == OffPlan(1.8 / 1.2), "nor those of whom nothing is known"


def test_a_step_that_is_shorter_names_who_is_faster() -> None:
    found = off_plan(PLAN, Measured(0.6, {0: 0.5, 1: 1.5}, ON_LINK, {"wopr": 0.5}))
    assert found == OffPlan(0.5, (OffPlanCause("computing", 0.5, rank=R0),))


def test_transfers_are_those_of_the_recorded_step_whatever_the_clocks_say() -> None:
    slow = LinkTimes(latency=0.02, occupied=0.09)
    for clocks in ((), (0.0, 5.0)):
        found = transfers_of(traces_of(walked(link=slow), clocks=clocks))
        assert set(found) == {(0, 1), (1, 0)}
        for one in found.values():
            assert one.number == MESSAGES
            assert one.least_s == pytest.approx(sum(slow))


def test_what_kept_a_message_in_one_recorded_step_alone_is_not_the_links() -> None:
    late = LinkTimes(latency=0.5, occupied=LINK.occupied)
    told = [traces_of(walked(link=one), number=number) for number, one in ((3, LINK), (5, late))]
    both = {f"node{rank + 1}": [traces[Rank(rank)] for traces in told] for rank in range(2)}
    first = {node: traces[:1] for node, traces in both.items()}
    last = {node: traces[1:] for node, traces in both.items()}
    transfers = RecentTransfers()

    def least(found: Mapping[Pair, SentMessages]) -> list[float]:
        return [found[R0, R1].least_s, found[R1, R0].least_s]

    def job(traces: Mapping[str, Sequence[RankTrace]]) -> JobHistory:
        return history(view("running", "running"), traces)

    as_planned = pytest.approx([sum(LINK)] * 2)
    assert least(transfers.of(job(first))) == as_planned
    assert least(transfers.of(job({**both, "node2": first["node2"]}))) == as_planned, "not all told"
    assert least(transfers.of(job(both))) == as_planned
    assert min(least(RecentTransfers().of(job(last)))) == pytest.approx(sum(late))


def test_what_is_measured_is_that_of_the_first_pipeline_now() -> None:
    ranks = [step(rank, 1, compute_s=float(rank + 1)) for rank in range(2)]
    job = history(view("running", "running"), {"node1": [ranks[0]], "node2": [ranks[1]]})
    told = [
        JobEvent(kind="traffic", time_s=1.0, node="wopr", share=0.3),
        JobEvent(kind="traffic", time_s=1.0, end_s=2.0, node="muthur", share=0.9),
    ]
    alone = plan_of()
    one_rank = type(alone)(step_s=1.0, tokens_per_s=1.0, ranks=alone.ranks[:1])
    found = measured_of(job, one_rank, 2.0, {(R0, R1): ON_LINK[R0, R1]}, told)
    assert found == Measured(2.0, {0: 1.0}, {}, {"wopr": 0.3})
    found = measured_of(job, alone, 2.0, ON_LINK, told)
    assert (found.computing_s, found.transfers) == ({0: 1.0, 1: 2.0}, ON_LINK)


def test_a_summary_has_the_prediction_and_the_reason() -> None:
    layout = {"wopr": 1, "muthur": 1}
    summary = sample_job(layout, plan=plan_of(0.5, 0.4), traced=(3,)).summary
    assert summary.predicted_step_s == 0.5
    assert summary.step_s is not None
    assert summary.off_plan is not None
    assert summary.off_plan.ratio == pytest.approx(summary.step_s / 0.5, rel=1e-3)
    assert {one.kind for one in summary.off_plan.causes} == {"computing"}
    near = sample_job(layout, plan=plan_of(1.2)).summary
    assert (near.predicted_step_s, near.off_plan) == (1.2, None)
    assert sample_job(layout).summary.predicted_step_s is None
