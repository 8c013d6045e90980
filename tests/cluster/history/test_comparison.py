"""Comparison of job handles: figures in their order, and what differs."""

from __future__ import annotations

import msgspec

from jupyter_mntrain.cluster import JobHistory
from jupyter_mntrain.cluster.history.comparison import compare_jobs
from tests.standin.job_handle import StandInJob
from tests.standin.training import Sample, sample_job


def job(steps: int, priority: int) -> StandInJob:
    sample = sample_job({"wopr": 1}, steps=steps, state="succeeded")
    spec = msgspec.structs.replace(sample.history.view.spec, priority=priority)
    history = JobHistory(
        view=msgspec.structs.replace(sample.history.view, spec=spec),
        ranks=sample.history.ranks,
        links=sample.history.links,
        is_complete=True,
    )
    return StandInJob(Sample(history, sample.now_s))


def test_figures_and_values_are_in_the_order_of_the_jobs():
    compared = compare_jobs([job(steps=60, priority=7), job(steps=40, priority=0)])
    assert [one.step for one in compared.summaries] == [60, 40]
    (differing,) = compared.settings.differing
    assert differing.name == "launch.priority"
    assert [one and one.value for one in differing.values] == [7, 0]
