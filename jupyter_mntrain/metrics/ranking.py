"""Ranking: which of several jobs is the fastest, or why that cannot be determined. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from math import hypot, sqrt
from statistics import NormalDist
from typing import Final

from jupyter_mntrain.metrics.summary import JobNumbers
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.ids import JobId

FIGURE: Final = "tok/s over the whole job"

SIGMAS: Final = 2.0
DEVIATIONS: Final = NormalDist().inv_cdf(0.9) - NormalDist().inv_cdf(0.1)
"""Standard deviations between the tenth and the ninetieth percentile."""

ALIKE: Final = 0.02
"""Figures that differ by no more count as equal."""


class RankedJob(Record, frozen=True):
    """A job and its throughput over all of its steps.

    Args:
        times: the fastest one's throughput over this one's.
        low, high: the range in which that is in 19 of 20 cases, as steps differ by chance; few
            steps that differ much tell little.
    """

    job_id: JobId
    tokens_per_s: float
    times: float
    low: float
    high: float


class Ranking(Record, frozen=True):
    """Jobs ordered by a figure, fastest first; if there is no order, ``refused`` says why."""

    figure: str
    jobs: tuple[RankedJob, ...] = ()
    refused: str | None = None


def rank_jobs(jobs: Mapping[JobId, JobNumbers]) -> Ranking:
    """Rank jobs by throughput, if all of them count tokens in the same way."""
    rates = {job: rate for job, told in jobs.items() if (rate := whole_rate(told)) is not None}
    unknown = [job for job in jobs if job not in rates]
    if unknown:
        why = jobs[unknown[0]].missing.get("tokens_per_s") or "it has made no step"
        return Ranking(FIGURE, refused=f"{unknown[0]} has no tok/s: {why}")
    counts = {told.counts_padding: job for job, told in jobs.items()}
    if len(counts) > 1:
        return Ranking(FIGURE, refused=f"tokens are counted differently: {_counted(counts)}")
    ordered = sorted(rates.items(), key=lambda one: one[1], reverse=True)
    best, fastest = ordered[0]
    ranked = []
    for job, rate in ordered:
        times = fastest / rate
        off = 0.0 if job == best else SIGMAS * hypot(_unsure(jobs[best]), _unsure(jobs[job]))
        low, high = times * max(0.0, 1 - off), times * (1 + off)
        ranked.append(RankedJob(job, rate, times=times, low=low, high=high))
    return Ranking(FIGURE, jobs=tuple(ranked))


def _unsure(numbers: JobNumbers) -> float:
    """Return the relative standard error of the mean step time."""
    spread, whole = numbers.step_spread, numbers.whole
    if spread is None or whole is None:
        return 0.0
    deviation_s = (spread.high - spread.low) / DEVIATIONS
    return deviation_s / sqrt(whole.steps) / (whole.seconds / whole.steps)


def whole_rate(numbers: JobNumbers) -> float | None:
    """Return the tokens per second over the whole job."""
    return numbers.whole.tokens_per_s if numbers.whole else None


def _counted(counts: dict[bool | None, JobId]) -> str:
    words = {
        True: "with padding in {}",
        False: "without padding in {}",
        None: "as its script counts them in {}",
    }
    return ", ".join(words[one].format(job) for one, job in counts.items())
