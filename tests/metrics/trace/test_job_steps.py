"""Steps of a job: their ranks, and why one is missing."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from jupyter_mntrain.metrics.trace.job_steps import (
    not_recorded,
    pipeline_names,
    predicted_step,
    rank_names,
)
from jupyter_mntrain.model.errors import SpecError
from tests.standin.plans import plan_of
from tests.standin.training import sample_job


def test_a_predicted_step_is_that_of_the_first_pipeline() -> None:
    history = sample_job({"wopr": 2, "muthur": 2}, replicas=2, plan=plan_of()).history
    names = rank_names(history.view)
    assert [name.split() for name in names] == [
        ["r0", "wopr"], ["r1", "wopr"], ["r2", "muthur"], ["r3", "muthur"],
    ]  # fmt: skip
    assert pipeline_names(history) == (names[0], names[2])
    unplanned = sample_job({"wopr": 2, "muthur": 2}, replicas=2).history
    assert pipeline_names(unplanned) == ()


def test_a_pipeline_of_replicas_that_meet_rarely_is_one_after_another() -> None:
    history = sample_job({"wopr": 2, "muthur": 2}, plan=plan_of()).history
    ranks = {}
    for rank, series in history.ranks.items():
        assert series.start is not None
        ranks[rank] = replace(
            series, start=msgspec.structs.replace(series.start, stages=(rank % 2,))
        )
    apart = replace(history, ranks=ranks)
    names = rank_names(history.view)
    assert pipeline_names(apart) == (names[0], names[1])


def test_without_a_plan_nothing_is_predicted_and_no_file_is_read() -> None:
    view = sample_job({"wopr": 1, "muthur": 1}).history.view
    with pytest.raises(SpecError):
        predicted_step(view, lambda: pytest.fail("it was read"))


def test_a_plan_predicts_a_step() -> None:
    view = sample_job({"wopr": 1, "muthur": 1}, plan=plan_of()).history.view
    assert len(predicted_step(view, lambda: view.spec).ranks) == 2


def test_a_job_says_why_it_has_recorded_nothing() -> None:
    assert not_recorded(sample_job({"wopr": 1}).history.view).fix
