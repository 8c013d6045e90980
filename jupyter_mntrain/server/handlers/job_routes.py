"""Job resources: launch, read, change and end jobs; logs and files are in ``log_routes``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, get_args

import msgspec

from jupyter_mntrain.cluster import Job as ClusterJob
from jupyter_mntrain.cluster.history.zoom import AXES
from jupyter_mntrain.http.json_handler import LARGEST, refusal
from jupyter_mntrain.launch.compared_settings import compare_settings, compared_settings
from jupyter_mntrain.launch.spec_file import read_spec, secret_names, write_spec
from jupyter_mntrain.metrics.entry_builder import listed_entry
from jupyter_mntrain.metrics.page_entries import JobEntry
from jupyter_mntrain.metrics.ranking import rank_jobs
from jupyter_mntrain.metrics.series_builder import POINTS
from jupyter_mntrain.model.api import LONGEST_GRACE_S, CheckpointChange
from jupyter_mntrain.model.errors import DoctorRefusedError, RefusedError, SpecError, job_not_found
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.lifecycle.listing import JobSort
from jupyter_mntrain.model.program import program_of
from jupyter_mntrain.model.records.job import TERMINAL, JobSpec, JobView
from jupyter_mntrain.model.records.setting import Setting
from jupyter_mntrain.plan.software.versions import unacknowledged
from jupyter_mntrain.server.allocations.watched_clusters import WatchedClusters
from jupyter_mntrain.server.handlers.base import MntrainHandler, allowed
from jupyter_mntrain.server.messages import (
    AskStacks,
    DifferingSetting,
    EndJob,
    JobComparison,
    JobSettings,
    LabelJob,
    LaunchedJob,
    LaunchJob,
    RefusedLaunch,
    ResumeJob,
    SavedOutput,
    SaveJob,
    ShownSetting,
    SpecFile,
)
from jupyter_mntrain.server.series_feed import JobFeed
from jupyter_mntrain.server.shown_steps import JobTrace, job_trace
from jupyter_mntrain.server.updates import ROUND_S, PageUpdates
from jupyter_mntrain.show.job_output import (
    LAST_SAMPLES_S,
    JobOutput,
    saved_bundle,
    saved_points,
    written_note,
)
from jupyter_mntrain.show.stacks import shown_stacks
from jupyter_mntrain.show.tables.settings import setting_words
from jupyter_mntrain.sources.awaited_launch import AwaitedLaunch, silence_of
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

    async def job(self, text: str) -> ClusterJob:
        updates, entry = await self.entry(text)
        return updates.clusters.known_job(entry.job_id)

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
        job = await self.job(job_id)
        rank = self.body_as(AskStacks).rank
        answers = await self.work(job.stacks, rank=rank)
        self.answer(shown_stacks(job.view(), answers, rank))


class SpecResource(OneJobResource):
    @allowed
    async def get(self, job_id: str) -> None:
        job = await self.job(job_id)
        spec = await self.work(job.spec)
        when = job.view().attempt.submitted_s
        text = write_spec(unacknowledged(spec), job_id=job.id, submitted_s=when)
        name, left_out = f"{job.id}.toml", secret_names(spec)
        self.answer(SpecFile(name=name, text=text, left_out=left_out))


def shown_setting(one: Setting) -> ShownSetting:
    return ShownSetting(name=one.name, value=setting_words(one), origin=one.origin)


class SettingsResource(OneJobResource):
    @allowed
    async def get(self, job_id: str) -> None:
        found = (await self.job(job_id)).settings()
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


# Launch resource: cancels a launch that waits for nodes.


class LaunchResource(MntrainHandler):
    @allowed
    async def delete(self, cluster: str) -> None:
        updates = await self.updates()
        await self.work(cancel_launch, updates.clusters, cluster, f"canceled by {self.person}")
        updates.forget_launch(cluster)
        self.set_status(204)


def cancel_launch(clusters: WatchedClusters, name: str, reason: str) -> None:
    """Give back the nodes that a launch waits for; a job that waited for them is stopped.

    Args:
        reason: why, stored with the job.

    Raises:
        RequestRefusedError: there is no such launch, or it waits no more.
        RefusedError: the scheduler does not say how it is; or it was canceled meanwhile.
    """
    launch = AwaitedLaunch.named(name)
    if launch is None:
        raise refusal(
            404, Kind.NODES_TAKEN, f"launch {name} no longer waits for nodes: it was canceled"
        )
    now = launch.look()
    if (silence := silence_of(now)) is not None:
        raise silence
    launch.job()  # one may have started while the scheduler was asked
    is_in_use = launch.note.has_begun and now.state != "pending"
    if is_in_use or launch.give_back_seen(now) is None:
        cause = f"{name} does not wait for nodes any more"
        fix = "see its job, and stop that"
        if not launch.note.jobs:
            fix = f"end what uses its nodes, or give them back: mntrain stop {name}"
        raise refusal(409, Kind.NODES_TAKEN, cause, fix)
    if launch.note.jobs:  # its record says why it does not go on
        job = clusters.find(launch.note.jobs[-1])
        if job.view().state not in TERMINAL:
            job.stop(reason=reason)


# Resume resources: what a job can resume from, resuming it, and its run's checkpoints.


class ResumeResource(OneJobResource):
    @allowed
    async def get(self, job_id: str) -> None:
        job = await self.job(job_id)
        self.answer(await self.work(job.resume_offer))

    @allowed
    async def post(self, job_id: str) -> None:
        updates, entry = await self.entry(job_id)
        body = self.body_as(ResumeJob)
        job = updates.clusters.known_job(entry.job_id)
        spec = await self.work(_planned, job, body)
        await self.launch(updates, spec, entry.job_id, is_checked=not body.skips_doctor)


class CheckpointsResource(OneJobResource):
    @allowed
    async def post(self, job_id: str) -> None:
        job = await self.job(job_id)
        change = self.body_as(CheckpointChange)
        await self.work(job.change_checkpoint, change.step, change.action)
        self.answer(await self.work(job.resume_offer))


def _planned(job: ClusterJob, body: ResumeJob) -> JobSpec:
    more = [] if body.steps is None else [f"train.steps={body.steps}"]
    before = msgspec.structs.replace(job.spec(), mixed_versions=body.mixed_versions)
    plan = job.plan_resume(program_of(before).with_settings(more), begin=body.begin)
    if body.expected_step not in (None, plan.step):
        raise refusal(
            409,
            Kind.NO_CHECKPOINT,
            f"the newest checkpoint is now of step {plan.step}, not {body.expected_step}",
            "look at the list of checkpoints again",
        )
    return plan.spec


# Record resources: name, note and deletion of a job.


class LabelResource(OneJobResource):
    @allowed
    async def put(self, job_id: str) -> None:
        updates, entry = await self.entry(job_id)
        body = self.body_as(LabelJob)
        job = updates.clusters.known_job(entry.job_id)
        if body.name is not None:
            await self.work(job.rename, body.name)
        if body.note is not None:
            await self.work(job.note, body.note)
        updates.look_now()
        self.answer(updates.job(entry.job_id) or entry, 202)


class RemovalResource(OneJobResource):
    """``GET`` says what ``DELETE`` would delete."""

    @allowed
    async def get(self, job_id: str) -> None:
        self.answer(await self.work((await self.job(job_id)).plan_removal))

    @allowed
    async def delete(self, job_id: str) -> None:
        updates, entry = await self.entry(job_id)
        with_checkpoints = self.number("checkpoints", 0, 0, 1) == 1
        job = updates.clusters.known_job(entry.job_id)
        removal = await self.work(job.remove, with_checkpoints=with_checkpoints)
        updates.look_now()
        self.answer(removal)


# Output resource: the output of a job that a page saves in a notebook.


class OutputResource(OneJobResource):
    """Data, picture and text of one moment, as the kernel shows them."""

    @allowed
    async def get(self, job_id: str) -> None:
        updates, entry = await self.entry(job_id)
        feed = await self._read_to_end(updates, entry.job_id)
        history, now_s = feed.history, time.time()
        assert history is not None  # noqa: S101  # feed() has looked
        entry = updates.job(entry.job_id) or entry
        view = history.view
        points = saved_points(view.attempt.world_size)
        cluster = updates.clusters.of_job(entry.job_id).name
        saved = saved_bundle(cluster, entry, feed.series("", 0, points), now_s)
        drawn = feed.series("", 0, POINTS)
        has_picture = view.state in TERMINAL or any(rank.time_s for rank in drawn.ranks)
        data, metadata = await self.work(
            JobOutput().make,
            saved,
            drawn.summary,
            drawn if has_picture else None,
            view,
            now_s=now_s,
            note=written_note(view, now_s),
        )
        self.answer(
            SavedOutput(
                job=saved,
                text=data["text/plain"],
                picture=data.get("image/png"),
                width_px=metadata.get("image/png", {}).get("width", 0),
            )
        )

    async def _read_to_end(self, updates: PageUpdates, job_id: JobId) -> JobFeed:
        """Return a job's feed; for an ended job, once its last rows are read or are unavailable."""
        deadline = time.monotonic() + LAST_SAMPLES_S
        feed = updates.feed(job_id)
        while not feed.is_over and time.monotonic() < deadline:
            if feed.history is None or feed.history.view.state not in TERMINAL:
                break
            await asyncio.sleep(ROUND_S)
            feed = updates.feed(job_id)
        updates.look_now()
        return feed


# Trace resource: a recorded step of a job, requested while a page shows it.


class TraceResource(OneJobResource):
    @allowed
    async def get(self, job_id: str) -> None:
        updates, entry = await self.entry(job_id)
        updates.feed(entry.job_id)  # so that what is read is freed again
        job = updates.clusters.known_job(entry.job_id)

        def read() -> JobTrace:
            return job_trace(job.catch_up(LAST_SAMPLES_S), job.spec)

        self.answer(await self.work(read))


# Compare resource: what differs between the settings of jobs.


LEAST_COMPARED, MOST_COMPARED = 2, 4


class CompareResource(OneJobResource):
    @allowed
    async def get(self) -> None:
        wanted = self.get_query_arguments("job")
        if not LEAST_COMPARED <= len(wanted) <= MOST_COMPARED:
            raise refusal(
                400,
                Kind.BAD_REQUEST,
                f"{len(wanted)} jobs cannot be compared",
                f"name {LEAST_COMPARED} to {MOST_COMPARED} with job=",
            )
        settings, numbers = [], {}
        for text in wanted:
            updates, entry = await self.entry(text)
            updates.feed(entry.job_id)  # so that what is read is freed again
            job = updates.clusters.known_job(entry.job_id)
            # What the list knows of a job that nobody watches is not what it made.
            await self.work(job.catch_up, LAST_SAMPLES_S)
            numbers[entry.job_id] = (await self.work(job.summary)).numbers
            settings.append(compared_settings(await self.work(job.spec)))
        found = compare_settings(settings)
        differing = (
            DifferingSetting(
                name=one.name,
                values=tuple(
                    None if value is None else shown_setting(value) for value in one.values
                ),
            )
            for one in found.differing
        )
        ranking = rank_jobs(numbers)
        self.answer(JobComparison(tuple(differing), found.same, ranking))
