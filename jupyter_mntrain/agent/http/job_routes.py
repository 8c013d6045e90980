"""Job routes: start, stop and read jobs."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from tornado.iostream import StreamClosedError
from tornado.web import HTTPError

from jupyter_mntrain.agent.access.callers import NotAllowedError, around, masked_log
from jupyter_mntrain.agent.attempt.processes import metrics_of
from jupyter_mntrain.agent.attempt.supervisor import marks_between, next_data
from jupyter_mntrain.agent.failure.stacks import answers
from jupyter_mntrain.agent.gang.moved_gpus import as_it_is_now, is_of_allocation
from jupyter_mntrain.agent.http.base import ALL, DRIVERS, GANG, WATCHING, AgentHandler
from jupyter_mntrain.agent.jobs.ended_jobs import page_of
from jupyter_mntrain.agent.jobs.forgetting import delete, deletion_of
from jupyter_mntrain.agent.jobs.local_job import LocalJob
from jupyter_mntrain.agent.jobs.rank_requests import ask_for_settings, news_for, refuse_chat
from jupyter_mntrain.agent.jobs.run_checkpoints import (
    change_checkpoint,
    checkpoints_here,
    checkpoints_in,
)
from jupyter_mntrain.agent.jobs.samples.archive import Range, SamplesAnswer
from jupyter_mntrain.agent.jobs.session_ranks import refuse_session, relayed
from jupyter_mntrain.http.json_handler import LARGEST, refusal
from jupyter_mntrain.launch.gang_start import workplace_of
from jupyter_mntrain.metrics.downsampled.samples import NodeSamples
from jupyter_mntrain.model.api import (
    CheckpointChange,
    KillRequest,
    LeaseRequest,
    Route,
    SaveRequest,
    StartRequest,
    StopRequest,
)
from jupyter_mntrain.model.errors import JobNotFoundError, RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import JobId, NodeId, Rank
from jupyter_mntrain.model.lifecycle.deletion import JobDeletion
from jupyter_mntrain.model.lifecycle.listing import JobQuery
from jupyter_mntrain.model.lifecycle.restarts import follows, may_lead
from jupyter_mntrain.model.lifecycle.running_changes import (
    SettingsRequest,
    earlier_changes,
    last_values,
)
from jupyter_mntrain.model.program import program_of
from jupyter_mntrain.model.records.job import JobRecord
from jupyter_mntrain.model.records.session import Run, SessionRequest
from jupyter_mntrain.model.text.conversation import ChatReply, ChatRequest
from jupyter_mntrain.model.text.label import JobLabel
from jupyter_mntrain.model.text.log_parts import LOG_OFFSET_HEADER, LOG_SIZE_HEADER, LogTimes
from jupyter_mntrain.plan.spec_check import check_label
from jupyter_mntrain.telemetry.chat_files import is_news, note_driver, put_question

MAX_LOG_BYTES = 2**20
"""Maximum size of log text in one answer. A reader asks again for more."""

CHAT_WAIT_S = 1.0
"""How long the answer to a driver of a chat waits for more of what the model says."""

CHAT_LOOK_S = 0.05
"""Interval at which it looks meanwhile."""

GONE_CHECK_S = 5.0
"""Interval of checks whether the reader of a silent journal has disconnected."""


# Restart routes: lets a job's head start the deposited job again on the other participants.


class RestartHandler(AgentHandler):
    """Lets drivers start anything, and a node the next attempt of a job that it leads."""

    def refuse_foreign(self, job_id: JobId) -> JobRecord:
        """Return the job's record if the calling node may lead the job.

        Raises:
            NotAllowedError: no driver has deposited the job here, or another node leads it.
        """
        try:
            record = self.node.jobs.get(job_id).record
        except JobNotFoundError:
            raise self.not_allowed() from None
        if not may_lead(NodeId(self.caller.name), record):
            raise self.not_allowed()
        return record

    def refuse_what_is_over(self, job_id: JobId) -> JobRecord:
        """Like :meth:`refuse_foreign`; also refuses a job that has ended for good."""
        record = self.refuse_foreign(job_id)
        if not (record.spec.max_restarts or record.was_queued):
            raise self.not_allowed()
        return record

    def refuse_other_work(self, request: StartRequest) -> None:
        """Refuse a node's request that differs from what the driver asked for."""
        if self.caller.role == "driver":
            return
        record = self.refuse_foreign(request.job_id)
        if (request.spec, request.attempt) == (record.spec, record.attempt):
            return  # repeated, because the answer was lost
        self.refuse_what_is_over(request.job_id)
        if request.spec != record.spec or not follows(request.attempt, record):
            raise self.not_allowed()
        changes = earlier_changes(request.attempt)
        if changes and not last_values(changes).keys() <= program_of(request.spec).changeable:
            raise self.not_allowed()

    def lease_request(self) -> LeaseRequest:
        """Return the request if the caller may make it.

        Raises:
            NotAllowedError: a node asks for more than the driver did.
        """
        if self.caller.role == "driver":
            return self.body_as(LeaseRequest)
        try:
            request = self.body_as(LeaseRequest)
        except HTTPError:
            raise self.not_allowed() from None
        record = self.refuse_what_is_over(request.job_id)
        own = next(p for p in record.attempt.placements if p.node_id == self.node.node_id)
        asked = (request.ranks, len(request.gpus), request.hold_port)
        granted = (own.nproc, len(own.gpus), None)
        # Else the node itself says which it has now, whatever this attempt had.
        is_same = is_of_allocation(self.node) or (
            (request.gpus, request.interface) == (own.gpus, own.interface)
        )
        is_same &= request.shares_gpus <= own.shares_gpus
        if not is_same or request.attempt < record.attempt.number or asked != granted:
            raise self.not_allowed()
        if request.session not in (None, record.spec.session):
            raise self.not_allowed()
        if request.workplace != workplace_of(record.spec):
            raise self.not_allowed()
        return as_it_is_now(self.node, request)


class _SharedJob(AgentHandler):
    """A route that a job's participants may also call: each of them already has the job."""

    def shared(self, job_id: str) -> JobId:
        """Return the job id if the caller may see the job.

        Raises:
            NotAllowedError: the node is not a participant, or no driver has deposited the job here.
        """
        known = self.job_id(job_id)
        if self.caller.role != "node":
            return known
        try:
            record = self.node.jobs.get(known).record
        except JobNotFoundError:
            raise self.not_allowed() from None
        placements = record.attempt.placements
        if self.caller.name not in {*record.members, *(place.node_id for place in placements)}:
            raise self.not_allowed()
        return known


class QueueHandler(_SharedJob, route=Route.JOB, get=ALL, put=DRIVERS):
    """Stores a queued job with ``PUT``, which only drivers may."""

    def get(self, job_id: str) -> None:
        """Answer about a job. A node learns nothing of jobs that are not its own, not even that
        they exist.
        """
        try:
            known = self.shared(job_id)
        except NotAllowedError:
            raise self.node.jobs.not_found(JobId(job_id)) from None
        self.answer(self.node.jobs.get(known).record.without_files())

    def put(self, job_id: str) -> None:
        request = self.body_as(StartRequest)
        if request.job_id != self.job_id(job_id) or request.attempt.number != 0:
            raise refusal(400, Kind.BAD_REQUEST, "a queued job must have attempt 0")
        with self.audited("queue", job=job_id):
            if self.node.problem is not None:
                raise RefusedError.of(self.node.problem)
            job = self.node.jobs.deposit(request)
        self.watch_tasks.watch(job)
        self.answer(job.record.without_files())


class AttemptsHandler(RestartHandler, route=Route.ATTEMPT, put=GANG):
    def put(self, job_id: str, attempt: str) -> None:
        if self.caller.role == "node":
            self.refuse_foreign(self.job_id(job_id))
        request = self.body_as(StartRequest)
        self.refuse_other_work(request)
        if request.job_id != self.job_id(job_id) or request.attempt.number != int(attempt):
            raise refusal(400, Kind.BAD_REQUEST, "the path and the body name different attempts")
        with self.audited("start", job=job_id, attempt=attempt):
            job = self.node.jobs.start(request)
        self.watch_tasks.watch(job)
        self.node.tell_leases()
        self.answer(job.record.without_files())


class JobStopHandler(_SharedJob, route=Route.STOP, post=GANG):
    def post(self, job_id: str) -> None:
        known = self.shared(job_id)
        request = self.body_as(StopRequest)
        try:
            with self.audited("stop", job=job_id):
                record = self.node.jobs.stop(known, request)
        finally:
            self.node.tell_leases()  # a stop before the start releases the lease
        self.answer(record.without_files())


class JobJournalHandler(AgentHandler, route=Route.JOURNAL, get=WATCHING):
    """Sends lines above ``since``. With ``follow=1`` it goes on until the part has ended."""

    async def get(self, job_id: str) -> None:
        with self.streaming(), suppress(StreamClosedError):
            since = self.number("since", 0)
            follow = self.get_query_argument("follow", "0") == "1"
            job = self.job(job_id)
            journal = job.samples.journal
            position = journal.position_after(since)
            self.set_header("Content-Type", "application/x-ndjson")
            while not self.has_hung_up:
                # Taken before reading: a line that arrives meanwhile ends the wait below.
                # Read again: a queued job may have started since, and its journal continues.
                grown = journal.grown
                is_last = not (follow and self.node.jobs.get(job.record.job_id).is_active)
                for block, after in journal.read(position):
                    await self.send_block(self.seen_lines(block))
                    position = after
                if is_last:
                    return
                with suppress(TimeoutError):
                    await asyncio.wait_for(grown.wait(), GONE_CHECK_S)


class _LogHandler(AgentHandler):
    def job_with_log(self, job_id: str) -> LocalJob:
        """Return a job whose log the caller may read."""
        job = self.job(job_id)
        if not self.sees_secrets and self.hides_output:
            raise NotAllowedError(
                "a read-only driver does not see what the cells of this session print",
                fix="ask its owner to start it with: mntrain session start --viewers",
            )
        return job


class JobLogHandler(_LogHandler, route=Route.LOG, get=WATCHING):
    async def get(self, job_id: str) -> None:
        job = self.job_with_log(job_id)
        offset = self.number("offset", 0, -LARGEST)
        limit = min(self.number("limit", MAX_LOG_BYTES), MAX_LOG_BYTES)
        path = job.attempt.path / "log"
        size = path.stat().st_size if path.exists() else 0
        if offset < 0:
            offset = max(0, size + offset)
        content = b""
        if offset < size:
            # Not beyond the size just sent: the log grows while it is read.
            secrets = None if self.sees_secrets else self.secrets()
            offset, content = await asyncio.to_thread(_read, path, offset, limit, size, secrets)
        self.set_header("Content-Type", "application/octet-stream")
        self.set_header(LOG_SIZE_HEADER, str(size))
        self.set_header(LOG_OFFSET_HEADER, str(offset))
        self.write(content)


class JobLogTimesHandler(_LogHandler, route=Route.LOG_TIMES, get=WATCHING):
    async def get(self, job_id: str) -> None:
        job = self.job_with_log(job_id)
        begin, end = self.number("begin", 0), self.number("end", LARGEST)
        log, now_s = job.attempt.path / "log", job.attempt.clock()
        marks = await asyncio.to_thread(marks_between, log, begin, end, now_s)
        self.answer(LogTimes(marks))


class JobSaveHandler(AgentHandler, route=Route.SAVE, post=DRIVERS):
    def post(self, job_id: str) -> None:
        request = self.body_as(SaveRequest)
        job = self.job(job_id)
        with self.audited("save", job=job_id):
            job.save_checkpoint(request)
        self.answer(job.record.without_files())


class JobSettingsHandler(AgentHandler, route=Route.SETTINGS, post=DRIVERS):
    def post(self, job_id: str) -> None:
        request = self.body_as(SettingsRequest)
        job = self.job(job_id)
        with self.audited("set", job=job_id, settings=" ".join(request.settings)):
            ask_for_settings(request, job.record, metrics_of(job.attempt.path))
        self.answer(job.record.without_files())


class JobChatHandler(AgentHandler, route=Route.CHAT, post=DRIVERS):
    """Passes a question to a chat job, and answers with what is new, at once or soon."""

    async def post(self, job_id: str) -> None:
        request = self.body_as(ChatRequest)
        job = self.job(job_id)
        refuse_chat(request, job.record)
        metrics = metrics_of(job.attempt.path)
        if is_news(metrics, request):
            with self.audited("chat", job=job_id, turn=str(request.turn)):
                put_question(metrics, request)
        else:
            note_driver(metrics)
        until_s = time.monotonic() + (0.0 if request.is_last else CHAT_WAIT_S)
        while (answer := news_for(metrics, request)) is None and time.monotonic() < until_s:
            if self.has_hung_up or not job.is_active:
                break
            await asyncio.sleep(CHAT_LOOK_S)
        self.answer(ChatReply(answer))


class JobSessionHandler(AgentHandler, route=Route.SESSION, post=DRIVERS):
    """Passes a request to ranks of a session, and their events back as they come."""

    async def post(self, job_id: str) -> None:
        request = self.body_as(SessionRequest)
        job = self.job(job_id)
        refuse_session(request, job.record)
        with self.streaming(), suppress(StreamClosedError):
            self.set_header("Content-Type", "application/octet-stream")
            if isinstance(request.request, Run):
                with self.audited("cell", job=job_id, cell=str(request.request.cell)):
                    pass
            async for block in relayed(request, job.record, metrics_of(job.attempt.path)):
                await self.send_block(block)


class RankKillHandler(AgentHandler, route=Route.KILL_RANK, post=DRIVERS):
    def post(self, job_id: str, rank: str) -> None:
        request = self.body_as(KillRequest)
        job = self.job(job_id)
        with self.audited("kill rank", job=job_id, rank=rank):
            job.kill_rank(Rank(int(rank)), request)
        self.answer(job.record.without_files())


class JobStacksHandler(AgentHandler, route=Route.STACKS, post=DRIVERS):
    """Sends the current stacks of every rank on this node."""

    async def post(self, job_id: str) -> None:
        job = self.job(job_id)
        asked = job.ask_ranks() if job.is_active else []
        self.answer(await asyncio.to_thread(answers, asked))


def _read(
    path: Path, offset: int, limit: int, size: int, secrets: Sequence[str] | None = None
) -> tuple[int, bytes]:
    """Read a log after its freed part; return the offset and the bytes from there.

    Args:
        secrets: to mask, with those of known forms; ``None`` = nothing is masked.
    """
    with path.open("rb") as file:
        begin = next_data(file.fileno(), offset, size)
        content = os.pread(file.fileno(), min(limit, size - begin), begin)
        if secrets is None:
            return begin, content
        wider, length = around(begin, len(content))
        wider = next_data(file.fileno(), wider, size)
        read = os.pread(file.fileno(), min(length, size - wider), wider)
    return begin, masked_log(read, secrets)[begin - wider :][: len(content)]


# Checkpoint routes: list what this node has of a run; delete, pin and unpin.


class CheckpointsHandler(AgentHandler, route=Route.CHECKPOINTS, get=WATCHING, post=DRIVERS):
    async def get(self, job_id: str) -> None:
        await self._answer_with_list(job_id)

    async def post(self, job_id: str) -> None:
        change = self.body_as(CheckpointChange)
        jobs = self.node.jobs
        record = jobs.get(self.job_id(job_id)).record
        is_running = any(job.is_active for job in jobs.of_run(record.run))
        with self.audited(f"{change.action} checkpoint", job=job_id, step=str(change.step)):
            await self.slowly(
                change_checkpoint, record, jobs.directory, change, is_running=is_running
            )
        await self._answer_with_list(job_id)

    async def _answer_with_list(self, job_id: str) -> None:
        jobs = self.node.jobs
        record = jobs.get(self.job_id(job_id)).record
        self.answer(await self.slowly(checkpoints_here, record, jobs.directory))


class CheckpointsAtHandler(AgentHandler, route=Route.CHECKPOINTS_AT, get=DRIVERS):
    async def get(self) -> None:
        path = self.get_query_argument("path", "")
        if not path.startswith(("/", "~")) or "\0" in path:
            fix = "give a path from / or ~"
            raise refusal(400, Kind.BAD_REQUEST, f"path={path!r} is not absolute", fix)
        self.answer(await self.slowly(checkpoints_in, path))


# Deletion and label routes: delete an ended job, name it, and note something about it.


class DeletionHandler(AgentHandler, route=Route.DELETION, get=WATCHING, delete=DRIVERS):
    """Deletes a job with ``DELETE``, and tells with ``GET`` what that would delete."""

    async def get(self, job_id: str) -> None:
        self.answer(await self._measured(job_id))

    async def delete(self, job_id: str) -> None:
        with_checkpoints = self.number("checkpoints", 0, 0, 1) == 1
        measured = await self._measured(job_id)
        jobs = self.node.jobs
        with self.audited("delete", job=job_id, checkpoints=str(with_checkpoints).lower()):
            delete(jobs, jobs.get(self.job_id(job_id)), with_checkpoints=with_checkpoints)
        self.answer(measured)

    async def _measured(self, job_id: str) -> JobDeletion:
        record = self.job(job_id).record
        return await self.slowly(deletion_of, self.node.jobs, record)


class LabelHandler(AgentHandler, route=Route.LABEL, put=DRIVERS):
    def put(self, job_id: str) -> None:
        label = self.body_as(JobLabel)
        check_label(label)
        job = self.job(job_id)
        with self.audited("label", job=job_id, name=label.name):
            job.put_label(label)
        self.node.jobs.tell(job)
        self.answer(job.record.without_files())


# History routes: ended jobs in pages, and whole specs, whose files no record carries.


class JobsHandler(AgentHandler, route=Route.JOBS, get=WATCHING):
    def get(self) -> None:
        names = JobQuery.__struct_fields__
        asked = {name: text for name in names if (text := self.get_query_argument(name, ""))}
        try:
            query = msgspec.convert(asked, JobQuery, strict=False)
        except msgspec.ValidationError as error:
            raise refusal(400, Kind.BAD_REQUEST, f"the query is not valid: {error}") from error
        self.answer(page_of((job.file for job in self.node.jobs.all()), query, self.seen))


class SpecHandler(AgentHandler, route=Route.SPEC, get=WATCHING):
    def get(self, job_id: str) -> None:
        self.answer(self.job(job_id).record.spec)


# Sample routes: a job's samples downsampled, whole or a range of them.


MOST_POINTS = 16384
"""Largest number of blocks, or of steps one by one, that one answer has of a rank."""
POINTS = 2400
"""Blocks of a rank in an answer that does not say how many."""
MOST_RANK = 999_999


class JobSamplesHandler(AgentHandler, route=Route.SAMPLES, get=WATCHING):
    """Sends ``NodeSamples``. A job short enough to be read line by line is not sent whole."""

    async def get(self, job_id: str) -> None:
        points = self.number("points", POINTS, 1, MOST_POINTS)
        rank = self.number("rank", -1, 0, MOST_RANK)
        range_ = self._range()
        with self.streaming():
            job = self.job(job_id)
            samples = job.samples
            archive = samples.archive
            if archive is None or (range_ is None and archive.longest <= points):
                self.answer(NodeSamples(attempt=0, seq=0, is_whole=False))
                return
            answer = SamplesAnswer(
                archive,
                samples.journal,
                ranks=archive.ranks if rank < 0 else [Rank(rank)],
                points=points,
                range_=range_,
            )
            self.answer(await asyncio.to_thread(answer.read))

    def _range(self) -> Range | None:
        """Return the range of steps in the query, if there is one.

        Raises:
            RequestRefusedError: 400, it is none.
        """
        names = self.request.query_arguments
        if "begin" not in names and "end" not in names:
            return None
        by = self.get_query_argument("by", "step")
        if by not in ("step", "time"):
            raise refusal(400, Kind.BAD_REQUEST, f"by={by!r} is unknown", "use step or time")
        begin = self.number("begin", 0)
        end = self.number("end", LARGEST, begin)
        return Range(begin, end, "step" if by == "step" else "time_s")


# Lease routes: lease GPUs and ports, and say whether a port is free.


class LeasesHandler(RestartHandler, route=Route.LEASES, post=GANG):
    async def post(self) -> None:
        self.answer(await self.node.lease_for(self.lease_request()))


class LeaseHandler(RestartHandler, route=Route.LEASE, delete=GANG):
    def delete(self, job_id: str, attempt: str) -> None:
        """Release a lease whose attempt did not start. A running attempt needs a stop instead."""
        if self.caller.role == "node":
            self.refuse_what_is_over(self.job_id(job_id))
        self.node.leases.release_unstarted(self.job_id(job_id), int(attempt))
        self.node.tell_leases()
        self.answer({})


class PortHandler(AgentHandler, route=Route.PORT, get=DRIVERS):
    def get(self, port: str) -> None:
        interface = self.get_query_argument("interface", "") or None
        self.answer(self.node.port_status(int(port), interface))
