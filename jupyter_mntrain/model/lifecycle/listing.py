"""Listing of jobs: pages of ended jobs, searches and sort orders. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from msgspec import Meta

from jupyter_mntrain.model import tunables
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.records.job import TERMINAL, JobRecord, JobView
from jupyter_mntrain.model.text.secrets import shown_words

MOST_LISTED = 200
"""Most ended jobs in one answer. Records are small without their files: a few KiB each."""
RECENT = tunables.count("cluster.recent_jobs")
"""Ended jobs that a driver knows without being asked for more."""
MOST_SEARCHED = 200
"""Characters of a search."""

JobSort = Literal["started", "duration", "name", "state"]

_STATES = ("unknown", "stopping", "starting", "running", "pending", "failed", "canceled")
"""In the order of a list by state: what may need somebody first."""


class JobQuery(Record, frozen=True, omit_defaults=True):
    """Query for a page of a node's ended jobs. All conditions must hold.

    Args:
        after: ``next`` of the page before.
        search: in name, id, note, nodes, command and person, in any case.
        run: only jobs of this run.
        begins: of ids, with or without ``j-``.
    """

    limit: Annotated[int, Meta(ge=1, le=MOST_LISTED)] = MOST_LISTED
    after: Annotated[str, Meta(max_length=64)] = ""
    search: Annotated[str, Meta(max_length=MOST_SEARCHED)] = ""
    run: Annotated[str, Meta(max_length=64)] = ""
    begins: Annotated[str, Meta(max_length=64)] = ""


class JobPage(Record, frozen=True):
    """Ended jobs of a node, newest first.

    Args:
        next: ``after`` of the next page; ``None`` = this is the last one.
    """

    records: tuple[JobRecord, ...]
    next: str | None = None


def newest_jobs(jobs: Iterable[JobView], most_ended: int) -> list[JobView]:
    """Return all jobs that have not ended, and the newest ended ones; newest first."""
    listed, ended = [], 0
    for job in sorted_jobs(jobs, "started"):
        if job.state in TERMINAL:
            ended += 1
        if job.state not in TERMINAL or ended <= most_ended:
            listed.append(job)
    return listed


def sorted_jobs(jobs: Iterable[JobView], sort: JobSort, now_s: float = 0.0) -> list[JobView]:
    """Sort jobs by time, duration, name or state; equal ones newest first.

    Args:
        now_s: Unix time, for the duration of running jobs.
    """
    newest = sorted(jobs, key=lambda job: (-job.attempt.submitted_s, job.job_id))
    match sort:
        case "started":
            return newest
        case "duration":
            return sorted(newest, key=lambda job: -duration_s(job, now_s))
        case "name":
            return sorted(newest, key=lambda job: job.spec.name.casefold())
        case "state":
            return sorted(newest, key=_state_place)


def duration_s(job: JobView, now_s: float) -> float:
    """Return how long a job has run, over all attempts, or waited, if it never started."""
    if (ran_s := elapsed_s(job, now_s)) is not None:
        return ran_s
    end_s = ended_s(job)
    return max(0.0, (now_s if end_s is None else end_s) - job.attempt.submitted_s)


def elapsed_s(view: JobView, now_s: float) -> float | None:
    """Return the seconds from the first attempt's start to the last part's end; ``None`` before."""
    started = [part.started_s for part in view.parts if part.started_s is not None]
    earlier = view.attempt.earlier
    begun_s = earlier.begun_s if earlier else None
    if not started:
        return None if begun_s is None else max(0.0, now_s - begun_s)
    before_s = 0.0 if begun_s is None else max(0.0, min(started) - begun_s)
    if view.state in TERMINAL:
        # Each part by its own node's clock: clocks of two nodes are never subtracted.
        ran = (
            part.ended_s - part.started_s
            for part in view.parts
            if part.started_s is not None and part.ended_s is not None
        )
        longest = max(ran, default=None)
        return None if longest is None else before_s + longest
    return before_s + max(0.0, now_s - min(started))


def ended_s(job: JobView) -> float | None:
    """Return the Unix time at which a job's last part ended; ``None`` if it has not, or
    is unknown.
    """
    ends = [part.ended_s for part in job.parts if part.ended_s is not None]
    return max(ends) if job.state in TERMINAL and ends else None


def job_step(job: JobView) -> int | None:
    """Return the last step that every rank has finished."""
    steps = [rank.step for part in job.parts for rank in part.ranks]
    return None if not steps or None in steps else min(step for step in steps if step is not None)


def is_found(job: JobView, search: str) -> bool:
    """Whether a search matches a job's name, id, note, nodes, command or person, in any case."""
    nodes = (place.node for place in job.attempt.placements)
    return holds(
        search,
        (job.job_id, job.run, job.spec.name, job.label.note, *nodes, job.submitted_by),
        job.spec.entry,
    )


def holds(search: str, words: Iterable[str], command: tuple[str, ...]) -> bool:
    """Whether one of these words, or the command without its secrets, contains a text."""
    found = search.casefold()
    return any(found in word.casefold() for word in (*words, *shown_words(command)))


def _state_place(job: JobView) -> int:
    return _STATES.index(job.state) if job.state in _STATES else len(_STATES)
