"""Steps as the page draws them: both, one, or the reason."""

from __future__ import annotations

from jupyter_mntrain.server.shown_steps import JobTrace, job_trace
from jupyter_mntrain.show.tables.plans.step_bars import MOST_RANKS
from tests.standin.plans import plan_of
from tests.standin.training import Sample, sample_job


def shown(sample: Sample) -> JobTrace:
    return job_trace(sample.history, lambda: sample.history.view.spec)


def test_the_newest_recorded_step_and_the_predicted_one() -> None:
    found = shown(sample_job({"wopr": 1, "muthur": 1}, traced=(3, 50), plan=plan_of()))
    assert found.recorded is not None
    assert found.predicted is not None
    assert (found.recorded.spans.step, found.predicted.spans.step) == (50, None)
    assert found.recorded.names == found.predicted.names == ("r0 wopr", "r1 muthur")
    assert (found.not_recorded, found.not_predicted) == (None, None)


def test_without_a_plan_there_is_the_recorded_step_and_a_reason() -> None:
    found = shown(sample_job({"wopr": 1, "muthur": 1}, traced=(3,)))
    assert found.recorded is not None
    assert found.predicted is None
    assert found.not_predicted is not None


def test_without_a_recorded_step_there_is_a_reason_alone() -> None:
    found = shown(sample_job({"wopr": 1, "muthur": 1}, plan=plan_of()))
    assert (found.recorded, found.predicted) == (None, None)
    assert found.not_recorded is not None


def test_of_many_ranks_only_some_are_sent() -> None:
    found = shown(sample_job({"wopr": MOST_RANKS + 2}, traced=(3,)))
    assert found.recorded is not None
    assert len(found.recorded.spans.ranks) == MOST_RANKS
    assert len(found.recorded.names) == MOST_RANKS + 2
