"""Job routes: start, stop and read jobs."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tornado.iostream import StreamClosedError

from jupyter_mntrain.agent.access.callers import NotAllowedError
from jupyter_mntrain.agent.access.viewing import around, masked_log
from jupyter_mntrain.agent.attempt.processes import metrics_of
from jupyter_mntrain.agent.attempt.supervisor import marks_between, next_data
from jupyter_mntrain.agent.failure.stacks import answers
from jupyter_mntrain.agent.http.base import AgentHandler
from jupyter_mntrain.agent.http.restart_routes import RestartHandler
from jupyter_mntrain.agent.jobs.rank_requests import ask_for_settings, news_for, refuse_chat
from jupyter_mntrain.http.json_handler import LARGEST, refusal
from jupyter_mntrain.model.api import (
    KillRequest,
    SaveRequest,
    StartRequest,
    StopRequest,
)
from jupyter_mntrain.model.errors import JobNotFoundError, RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import JobId, Rank
from jupyter_mntrain.model.lifecycle.running_changes import SettingsRequest
from jupyter_mntrain.model.text.conversation import ChatReply, ChatRequest
from jupyter_mntrain.model.text.log_parts import LOG_OFFSET_HEADER, LOG_SIZE_HEADER, LogTimes
from jupyter_mntrain.telemetry.chat_files import is_news, note_driver, put_question

MAX_LOG_BYTES = 2**20
"""Maximum size of log text in one answer. A reader asks again for more."""

CHAT_WAIT_S = 1.0
"""How long the answer to a driver of a chat waits for more of what the model says."""

CHAT_LOOK_S = 0.05
"""Interval at which it looks meanwhile."""

GONE_CHECK_S = 5.0
"""Interval of checks whether the reader of a silent journal has disconnected."""


class _SharedJob(AgentHandler):
    """A route that a job's participants may call, too: each of them has the job already."""

    def shared(self, job_id: str) -> JobId:
        """The job id, if the caller may see the job.

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


class QueueHandler(_SharedJob):
    """``PUT``: a driver queues a job here."""

    def get(self, job_id: str) -> None:
        """Tells a node as little of others' jobs as of those that do not exist."""
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


class AttemptsHandler(RestartHandler):
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


class JobStopHandler(_SharedJob):
    def post(self, job_id: str) -> None:
        known = self.shared(job_id)
        request = self.body_as(StopRequest)
        try:
            with self.audited("stop", job=job_id):
                record = self.node.jobs.stop(known, request)
        finally:
            self.node.tell_leases()  # a stop before the start releases the lease
        self.answer(record.without_files())


class JobJournalHandler(AgentHandler):
    """Lines above ``since``; with ``follow=1`` the answer continues until the part has ended."""

    async def get(self, job_id: str) -> None:
        with self.streaming(), suppress(StreamClosedError):
            since = self.number("since", 0)
            follow = self.get_query_argument("follow", "0") == "1"
            job = self.node.jobs.get(self.job_id(job_id))
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


class JobLogHandler(AgentHandler):
    async def get(self, job_id: str) -> None:
        job = self.node.jobs.get(self.job_id(job_id))
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


class JobLogTimesHandler(AgentHandler):
    async def get(self, job_id: str) -> None:
        job = self.node.jobs.get(self.job_id(job_id))
        begin, end = self.number("begin", 0), self.number("end", LARGEST)
        log, now_s = job.attempt.path / "log", job.attempt.clock()
        marks = await asyncio.to_thread(marks_between, log, begin, end, now_s)
        self.answer(LogTimes(marks))


class JobSaveHandler(AgentHandler):
    def post(self, job_id: str) -> None:
        request = self.body_as(SaveRequest)
        job = self.node.jobs.get(self.job_id(job_id))
        with self.audited("save", job=job_id):
            job.save_checkpoint(request)
        self.answer(job.record.without_files())


class JobSettingsHandler(AgentHandler):
    def post(self, job_id: str) -> None:
        request = self.body_as(SettingsRequest)
        job = self.node.jobs.get(self.job_id(job_id))
        with self.audited("set", job=job_id, settings=" ".join(request.settings)):
            ask_for_settings(request, job.record, metrics_of(job.attempt.path))
        self.answer(job.record.without_files())


class JobChatHandler(AgentHandler):
    """Hands a question to a chat job; answers what is new, at once or within a moment."""

    async def post(self, job_id: str) -> None:
        request = self.body_as(ChatRequest)
        job = self.node.jobs.get(self.job_id(job_id))
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


class RankKillHandler(AgentHandler):
    def post(self, job_id: str, rank: str) -> None:
        request = self.body_as(KillRequest)
        job = self.node.jobs.get(self.job_id(job_id))
        with self.audited("kill rank", job=job_id, rank=rank):
            job.kill_rank(Rank(int(rank)), request)
        self.answer(job.record.without_files())


class JobStacksHandler(AgentHandler):
    """The current stacks of every rank on this node."""

    async def post(self, job_id: str) -> None:
        job = self.node.jobs.get(self.job_id(job_id))
        asked = job.ask_ranks() if job.is_active else []
        self.answer(await asyncio.to_thread(answers, asked))


def _read(
    path: Path, offset: int, limit: int, size: int, secrets: Sequence[str] | None = None
) -> tuple[int, bytes]:
    """Read a log, after its freed part: the offset, and the bytes from there.

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
