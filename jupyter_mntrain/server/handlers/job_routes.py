"""Job resources: launch, read and end jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import msgspec

from jupyter_mntrain.cluster import Job as ClusterJob
from jupyter_mntrain.cluster.history.zoom import AXES
from jupyter_mntrain.http.json_handler import LARGEST, refusal
from jupyter_mntrain.launch.spec_file import read_spec, secret_names, write_spec
from jupyter_mntrain.metrics.entry_builder import listed_entry
from jupyter_mntrain.metrics.page_entries import JobEntry
from jupyter_mntrain.metrics.series_builder import POINTS
from jupyter_mntrain.model.api import LONGEST_GRACE_S
from jupyter_mntrain.model.errors import DoctorRefusedError, RefusedError, SpecError, job_not_found
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.lifecycle.listing import JobSort
from jupyter_mntrain.model.records.job import JobSpec, JobView
from jupyter_mntrain.model.records.setting import Setting
from jupyter_mntrain.plan.software.versions import unacknowledged
from jupyter_mntrain.server.handlers.base import MntrainHandler, allowed
from jupyter_mntrain.server.messages import (
    AskStacks,
    EndJob,
    SaveJob,
    SpecFile,
)
from jupyter_mntrain.server.page_launches import LaunchedJob, LaunchJob, RefusedLaunch
from jupyter_mntrain.server.shown_settings import JobSettings, ShownSetting
from jupyter_mntrain.server.updates import PageUpdates
from jupyter_mntrain.show.stacks import shown_stacks
from jupyter_mntrain.show.tables.settings import setting_words
from jupyter_mntrain.verbs.launching.foreign_job import what_it_does

MOST_POINTS = 100_000
"""Maximum number of rows of a series that a request may ask for."""


class LaunchingResource(MntrainHandler):
    """A route that starts jobs."""

    async def launch(
        self, updates: PageUpdates, spec: JobSpec, before: JobId | None = None, **how: Any
    ) -> None:
        """Launch the job; answer with it and the doctor's notes on its nodes.

        Args:
            before: job in whose cluster it is launched; default: in the server's own.
            how: as for :meth:`Cluster.launch`.
        """
        notes: list[Problem] = []
        how |= {"submitted_by": self.person, "on_note": notes.append}
        try:
            # A fetch takes minutes to hours, and would end with the page's patience.
            job = await self.work(updates.clusters.launch, before, spec, is_fetched=False, **how)
        except DoctorRefusedError as error:
            first, *others = error.found
            refused = RefusedLaunch(**msgspec.structs.asdict(first), found=tuple(others))
            self.answer(refused, self.statuses[RefusedError])
            return
        updates.look_now()
        entry = updates.job(JobId(job.id))
        assert entry is not None  # noqa: S101  # launch() added it to the cluster's view
        self.answer(LaunchedJob(job=entry, notes=tuple(notes)), 201)


class OneJobResource(LaunchingResource):
    """A route of one job."""

    async def entry(self, text: str) -> tuple[PageUpdates, JobEntry]:
        updates, job_id = await self.updates(), self.job_id(text)
        entry = updates.job(job_id)
        if entry is None:
            # A server that has just started has not heard from all nodes yet.
            await self.work(updates.clusters.find, job_id)
            updates.look_now()
            entry = updates.job(job_id)
        if entry is None:
            raise job_not_found(job_id)
        return updates, entry

    async def end(self, text: str, how: Callable[[ClusterJob], JobView]) -> None:
        updates, entry = await self.entry(text)
        await self.work(how, updates.clusters.known_job(entry.job_id))
        updates.look_now()
        self.answer(updates.job(entry.job_id) or entry, 202)


class JobsResource(LaunchingResource):
    @allowed
    async def get(self) -> None:
        updates = await self.updates()
        search = self.get_query_argument("search", "")
        everything = self.number("all", 0, 0, 1) == 1
        sort: Any = self.get_query_argument("sort", "")
        if not (search or everything or sort):
            self.answer(updates.jobs)
            return
        if sort and sort not in get_args(JobSort):
            fix = f"use one of {', '.join(get_args(JobSort))}"
            raise refusal(400, Kind.BAD_REQUEST, f"sort={sort!r} is unknown", fix)
        views = await self.work(
            updates.clusters.jobs, search=search, everything=everything, sort=sort or "started"
        )
        known = {entry.job_id: entry for entry in updates.jobs}
        self.answer(tuple(known.get(view.job_id) or listed_entry(view) for view in views))

    @allowed
    async def post(self) -> None:
        updates, body = await self.updates(), self.body_as(LaunchJob)
        spec = await self._spec(updates, body)
        begin = body.begin or (spec.origin.place if spec.origin else None)
        spec = msgspec.structs.replace(spec, origin=None)  # it starts over, in a run of its own
        is_checked = not body.skips_doctor
        await self.launch(
            updates, spec, body.job_id, begin=begin, is_queued=body.is_queued, is_checked=is_checked
        )

    async def _spec(self, updates: PageUpdates, body: LaunchJob) -> JobSpec:
        match body:
            case LaunchJob(job_id=None, spec=str(text)):
                try:
                    spec = read_spec(text)
                    does = [] if body.yes else await self.work(what_it_does, text)
                except RecursionError as error:  # tomllib calls itself for every bracket
                    raise refusal(
                        400, Kind.BAD_SPEC, "this job file is nested too deeply"
                    ) from error
                if does:
                    cause = f"what this job file does was not confirmed: it {'; '.join(does)}"
                    raise SpecError(cause, fix='read it; then send it with "yes": true')
            case LaunchJob(job_id=str(job_id), spec=None):
                job = await self.work(updates.clusters.find, self.job_id(job_id))
                spec = await self.work(job.spec)
            case _:
                raise refusal(
                    400, Kind.BAD_REQUEST, "say what to launch", "give either job_id or spec"
                )
        # A page does not say what a job file acknowledges: whoever launches it does.
        return msgspec.structs.replace(spec, mixed_versions=body.mixed_versions)


class JobResource(OneJobResource):
    @allowed
    async def get(self, job_id: str) -> None:
        self.answer((await self.entry(job_id))[1])


class MetricsResource(OneJobResource):
    @allowed
    async def get(self, job_id: str) -> None:
        updates, entry = await self.entry(job_id)
        since = self.number("since", 0, 0, 2**53)
        points = self.number("points", 0, 1, MOST_POINTS)
        if "begin" in self.request.query_arguments or "end" in self.request.query_arguments:
            await self._zoom(updates, entry.job_id, points or POINTS)
            return
        feed = updates.feed(entry.job_id)
        stream = self.get_query_argument("stream", "")
        self.answer(feed.series(stream, since, points or None))

    async def _zoom(self, updates: PageUpdates, job_id: JobId, points: int) -> None:
        """Parse a range of steps or Unix seconds, both ends included."""
        begin = self.number("begin", 0)
        end = self.number("end", LARGEST, begin)
        named = self.get_query_argument("by", "step")
        by = next((axis for axis in AXES if axis == named), None)
        if by is None:
            raise refusal(400, Kind.BAD_REQUEST, f"by={named!r} is unknown", "use step or time")
        job = updates.clusters.known_job(job_id)
        self.answer(await self.work(job.zoom, begin, end, points, by=by))


class StacksResource(OneJobResource):
    """Current stacks: a POST, as it sends a request to every rank."""

    @allowed
    async def post(self, job_id: str) -> None:
        updates, entry = await self.entry(job_id)
        rank = self.body_as(AskStacks).rank
        job = updates.clusters.known_job(entry.job_id)
        answers = await self.work(job.stacks, rank=rank)
        self.answer(shown_stacks(job.view(), answers, rank))


class SpecResource(OneJobResource):
    @allowed
    async def get(self, job_id: str) -> None:
        updates, entry = await self.entry(job_id)
        job = updates.clusters.known_job(entry.job_id)
        spec = await self.work(job.spec)
        when = job.view().attempt.submitted_s
        text = write_spec(unacknowledged(spec), job_id=entry.job_id, submitted_s=when)
        name, left_out = f"{entry.job_id}.toml", secret_names(spec)
        self.answer(SpecFile(name=name, text=text, left_out=left_out))


def shown_setting(one: Setting) -> ShownSetting:
    return ShownSetting(name=one.name, value=setting_words(one), origin=one.origin)


class SettingsResource(OneJobResource):
    @allowed
    async def get(self, job_id: str) -> None:
        updates, entry = await self.entry(job_id)
        found = updates.clusters.known_job(entry.job_id).settings()
        self.answer(JobSettings(settings=tuple(map(shown_setting, found))))


class StopResource(OneJobResource):
    @allowed
    async def post(self, job_id: str) -> None:
        grace_s = self.body_as(EndJob).grace_s
        if not 0 <= grace_s <= LONGEST_GRACE_S:
            raise refusal(
                400,
                Kind.BAD_REQUEST,
                f"grace_s={grace_s} is out of range",
                f"use 0 to {LONGEST_GRACE_S:g} s",
            )
        reason = f"stopped by {self.person}"
        await self.end(job_id, lambda job: job.stop(reason=reason, grace_s=grace_s))


class SaveResource(OneJobResource):
    @allowed
    async def post(self, job_id: str) -> None:
        is_last = self.body_as(SaveJob).is_last
        reason = f"stopped after saving by {self.person}"
        await self.end(job_id, lambda job: job.save(is_last=is_last, reason=reason))


class KillResource(OneJobResource):
    @allowed
    async def post(self, job_id: str) -> None:
        await self.end(job_id, lambda job: job.kill())
