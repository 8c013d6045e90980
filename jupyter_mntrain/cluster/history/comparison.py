"""Comparison of jobs: their figures, and the settings that differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from jupyter_mntrain.launch.compared_settings import compare_settings, compared_settings
from jupyter_mntrain.metrics.ranking import Ranking, rank_jobs
from jupyter_mntrain.metrics.summary import JobSummary
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.records.job import JobSpec
from jupyter_mntrain.model.records.setting import SettingsComparison


class Comparable(Protocol):
    """The part of a job handle that a comparison needs."""

    def spec(self) -> JobSpec: ...
    def summary(self) -> JobSummary: ...


class ComparedJobs(Record, frozen=True):
    """Jobs side by side. ``summaries`` and each setting's values are in the order of the jobs;
    ``ranking`` is by one figure, or says why there is none.
    """

    summaries: tuple[JobSummary, ...]
    settings: SettingsComparison
    ranking: Ranking


def compare_jobs(jobs: Sequence[Comparable]) -> ComparedJobs:
    """Compare jobs by what has been read of their histories so far.

    Raises:
        NodeError: no node that has one of the jobs answers.
    """
    settings = compare_settings([compared_settings(job.spec()) for job in jobs])
    summaries = tuple(job.summary() for job in jobs)
    ranking = rank_jobs({one.job_id: one for one in summaries})
    return ComparedJobs(summaries, settings, ranking)
