"""Off plan: the reason why a step is not as long as predicted, and none where it is."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_mntrain.metrics.summarizer import _doubted, _slow_links
from jupyter_mntrain.metrics.summary import JobEvent, LinkSummary, OffPlan, OffPlanCause
from jupyter_mntrain.metrics.trace.off_plan import TOLERANCE, Measured, measured_of, off_plan
from jupyter_mntrain.metrics.trace.sent_messages import SentMessages
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.node import Capacity
from tests.standin.jobs import history, step, view
from tests.standin.plans import MESSAGES, plan_of
from tests.standin.traces import LINK
from tests.standin.training import sample_job

PLAN = plan_of()
R0, R1 = Rank(0), Rank(1)
AS_PLANNED = {0: 1.0, 1: 1.0}


def sent(factor: float = 1.0, **fields: Any) -> SentMessages:
    """Messages that take a multiple of what is planned, each of which was waited for."""
    least_s = factor * sum(LINK)
    return SentMessages(MESSAGES, least_s, waits_s=(least_s,) * MESSAGES, **fields)


ON_LINK = {(R0, R1): sent(), (R1, R0): sent()}


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
    slow = {**ON_LINK, (R1, R0): sent(3.0)}
    found = off_plan(PLAN, Measured(1.8, AS_PLANNED, slow))
    assert found is not None
    (cause,) = found.causes
    assert (cause.kind, cause.rank, cause.peer) == ("link", 1, 0)
    assert cause.ratio == pytest.approx(3.0)
    assert (cause.took_s, cause.planned_s) == (pytest.approx(3 * sum(LINK)), sum(LINK))


def test_a_link_costs_no_more_than_its_receiver_waited_for_it() -> None:
    slow = {**ON_LINK, (R1, R0): sent(3.0)._replace(waits_s=(0.02, 0.01))}
    assert off_plan(PLAN, Measured(1.8, AS_PLANNED, slow)) == OffPlan(1.8 / 1.2)
    late = {**ON_LINK, (R1, R0): sent(3.0)}
    found = off_plan(PLAN, Measured(1.8, {0: 1.59, 1: 1.0}, late))
    assert found is not None
    assert [one.kind for one in found.causes] == ["computing"], "it hardly idles more than planned"


def test_what_may_be_late_processes_or_clocks_is_no_links() -> None:
    late = {**ON_LINK, (R1, R0): sent(3.0, late_s=2.1 * sum(LINK))}
    assert off_plan(PLAN, Measured(1.8, AS_PLANNED, late)) == OffPlan(1.8 / 1.2)
    clocks = {(R0, R1): sent(0.2), (R1, R0): sent(1.8)}
    assert off_plan(PLAN, Measured(1.8, AS_PLANNED, clocks)) == OffPlan(1.8 / 1.2)


def test_what_costs_most_seconds_is_first_and_traffic_of_others_last() -> None:
    slow = {**ON_LINK, (R0, R1): sent(2.0)}
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
    short = {**ON_LINK, (R0, R1): sent(5.0)}
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
    assert (found.computing_s, found.messages) == ({0: 1.0, 1: 2.0}, ON_LINK)


def test_a_summary_has_the_prediction_and_the_reason() -> None:
    layout = {"wopr": 1, "muthur": 1}
    summary = sample_job(layout, plan=plan_of(0.5, 0.4), traced=(3, 5, 10)).summary
    assert summary.predicted_step_s == 0.5
    assert summary.step_s is not None
    assert summary.off_plan is not None
    assert summary.off_plan.ratio == pytest.approx(summary.step_s / 0.5, rel=1e-2)
    assert {one.kind for one in summary.off_plan.causes} == {"computing"}
    near = sample_job(layout, plan=plan_of(1.2)).summary
    assert (near.predicted_step_s, near.off_plan) == (1.2, None)
    assert sample_job(layout).summary.predicted_step_s is None


@pytest.mark.parametrize(("ratio", "marked"), [(1.8, set()), (10.4, {"wopr", "muthur"})])
def test_a_capacity_that_messages_contradict_is_marked_at_both_ends(
    ratio: float, marked: set[str]
) -> None:
    """88 of 100 Mbit/s were "9.2 %" of the 957 that were measured half an hour before."""
    job = sample_job({"wopr": 1, "muthur": 1}, plan=PLAN).history
    off = OffPlan(3.0, (OffPlanCause("link", ratio, rank=R0, peer=R1),))
    slow = set(_slow_links(job, off))
    assert slow == ({("wopr", "sent"), ("muthur", "received")} if marked else set())
    known = Capacity(bytes_per_s=957e6 / 8, source="measured")
    for node in ("wopr", "muthur"):
        for direction in ("sent", "received"):
            link = LinkSummary(node, "eth1", direction, "interface", capacity=known)
            told = _doubted(link, slow).capacity
            assert told is not None
            assert told.is_doubtful == ((node, direction) in slow)
