"""Job search: lists jobs, and finds one by the beginning of its id, however old."""

from __future__ import annotations

from typing import get_args

from jupyter_mntrain.cluster.session import DriverSession
from jupyter_mntrain.cluster.view.ended_jobs import listed_jobs
from jupyter_mntrain.model.errors import SpecError, bad_argument, job_not_found, not_answered
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.lifecycle.listing import (
    MOST_SEARCHED,
    RECENT,
    JobQuery,
    JobSort,
    is_found,
    newest_jobs,
    sorted_jobs,
)
from jupyter_mntrain.model.records.job import JobView
from jupyter_mntrain.model.records.node import awaited_words

RECENT_S = 5.0
"""Longest wait for those of nodes that have just been heard."""

LONGEST_ID = 16
"""Characters that may begin a job id; for longer texts no node is asked."""

MOST_NAMESAKES = 3
"""Ids in the refusal of a job's name; the newest."""


class JobSearch:
    """Finds jobs by the beginning of their id. Safe from any thread but the driver's own.

    Args:
        driver: whose nodes are asked.
    """

    def __init__(self, driver: DriverSession) -> None:
        self._driver = driver
        self._live = driver.live

    def listed(self, search: str, sort: JobSort, *, everything: bool) -> tuple[JobView, ...]:
        """Return the jobs that :meth:`jupyter_mntrain.Cluster.jobs` lists."""
        if sort not in get_args(JobSort):
            raise bad_argument("sort", sort, f"one of {', '.join(get_args(JobSort))}")
        live = self._live
        live.changes.wait_until(lambda: not live.records.is_busy, RECENT_S)
        if len(search) > MOST_SEARCHED:
            raise SpecError(
                f"the text to search for has {len(search)} characters",
                fix=f"use at most {MOST_SEARCHED}",
            )
        if search or everything:
            found = self._driver.loop.run(listed_jobs(live, JobQuery(search=search)))
            views = [view for view in found if not search or is_found(view, search)]
        else:
            views = newest_jobs(live.jobs.values(), RECENT)
        return tuple(sorted_jobs(views, sort, self._driver.clock.time()))

    def find(self, text: str) -> JobId:
        """Return the job id that begins so, once every participant of the job has answered.

        Raises:
            JobNotFoundError: no reachable node knows it.
            SpecError: several jobs begin like this.
        """
        live = self._live
        if text and len(text) <= LONGEST_ID and JobId(text) not in live.jobs:
            nodes = [info.node_id for info in live.reachable]
            self._driver.loop.run(live.records.find(text, nodes))
        is_known = self._driver.grace.wait(lambda: self._matches(text))
        if not is_known and live.records.is_busy:  # nodes that have just been heard are asked
            live.changes.wait_until(
                lambda: self._matches(text) or not live.records.is_busy, RECENT_S
            )
        if not self._matches(text):
            awaited = awaited_words(live.nodes, self._driver.clock.time())
            if awaited and text:
                raise not_answered(awaited, f"it is not known whether job {text} exists")
            named = [view.job_id for view in live.jobs.values() if view.spec.name == text]
            raise job_not_found(text, named[:MOST_NAMESAKES])
        matches = self._matches(text)
        if len(matches) > 1:
            raise SpecError(
                f"{len(matches)} jobs begin with {text!r}", fix=f"use one of {', '.join(matches)}"
            )
        self._hear_everybody(matches[0])
        return matches[0]

    def _matches(self, text: str) -> list[JobId]:
        jobs = self._live.jobs
        if JobId(text) in jobs:
            return [JobId(text)]
        return [job_id for job_id in jobs if text and job_id.startswith((text, f"j-{text}"))]

    def _hear_everybody(self, job_id: JobId) -> None:
        """Wait, in a new driver, until every participant of a job has answered.

        Any one of them knows the addresses of all, so discovery need not find each.
        """
        live = self._live
        placements = live.job(job_id).attempt.placements

        async def expect() -> None:
            for placement in placements:
                live.expect(placement)

        self._driver.loop.run(expect())
        self._driver.grace.wait(
            lambda: all(map(live.was_heard, placements)) and not live.records.is_busy
        )
