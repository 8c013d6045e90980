"""Ranking: which of several jobs is the fastest, by one figure; or why nobody can tell. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from jupyter_mntrain.metrics.summary import JobNumbers
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.ids import JobId

FIGURE: Final = "tok/s over the whole job"

ALIKE: Final = 0.02
"""Figures that differ by no more are not in an order."""


class RankedJob(Record, frozen=True):
    """A job and its throughput over all of it; ``times`` is the fastest one's over this one's."""

    job_id: JobId
    tokens_per_s: float
    times: float


class Ranking(Record, frozen=True):
    """Jobs by a figure, the fastest first; empty with ``refused``, which says why."""

    figure: str
    jobs: tuple[RankedJob, ...] = ()
    refused: str | None = None


def rank_jobs(jobs: Mapping[JobId, JobNumbers]) -> Ranking:
    """Rank jobs whose tokens are counted alike."""
    rates = {job: rate for job, told in jobs.items() if (rate := whole_rate(told)) is not None}
    unknown = [job for job in jobs if job not in rates]
    if unknown:
        why = jobs[unknown[0]].missing.get("tokens_per_s") or "it has made no step"
        return Ranking(FIGURE, refused=f"{unknown[0]} has no tok/s: {why}")
    counts = {told.counts_padding: job for job, told in jobs.items()}
    if len(counts) > 1:
        return Ranking(FIGURE, refused=f"tokens are not counted alike: {_counted(counts)}")
    fastest = max(rates.values())
    ordered = sorted(rates.items(), key=lambda one: one[1], reverse=True)
    return Ranking(
        FIGURE, jobs=tuple(RankedJob(job, rate, fastest / rate) for job, rate in ordered)
    )


def whole_rate(numbers: JobNumbers) -> float | None:
    """Tokens per second over the whole job."""
    return numbers.whole.tokens_per_s if numbers.whole else None


def _counted(counts: dict[bool | None, JobId]) -> str:
    words = {
        True: "with padding in {}",
        False: "without padding in {}",
        None: "as its script counts them in {}",
    }
    return ", ".join(words[one].format(job) for one, job in counts.items())
