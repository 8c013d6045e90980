"""WebSocket: sends a snapshot, then numbered changes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import msgspec
from jupyter_server.auth.decorator import authorized, ws_authenticated
from jupyter_server.base.websocket import WebSocketMixin
from tornado.ioloop import IOLoop
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from jupyter_mntrain.metrics.series import JobSeries
from jupyter_mntrain.model.errors import MntrainError, job_not_found
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId, is_job_id
from jupyter_mntrain.server.handlers.base import ClusterHandler
from jupyter_mntrain.server.messages import (
    PageMessage,
    Refused,
    SeriesSent,
    Unwatch,
    Watch,
    page_decoder,
    page_json,
)
from jupyter_mntrain.server.updates import PageUpdates

MOST_WAITING = 2000
"""Maximum number of messages that wait for one page. Beyond that, the page gets a full snapshot
instead."""

MOST_WAITING_BYTES = 64 * 2**20
"""Maximum number of bytes that wait for one page. All rows of a job of 64 ranks are about 4 MB."""

MOST_MESSAGE_BYTES = 4 * 2**10
"""Largest message of a page: it names one job to watch, or to watch no longer."""
MOST_WATCHED = 32
"""Maximum number of jobs that one page can watch at once."""


class Events(WebSocketMixin, WebSocketHandler, ClusterHandler):
    """The WebSocket of one page."""

    @ws_authenticated
    async def get(self) -> None:
        await self._authorize_and_upgrade()

    @authorized
    async def _authorize_and_upgrade(self) -> None:
        await WebSocketHandler.get(self)

    async def open(self, *args: object, **kwargs: object) -> None:
        super().open(*args, **kwargs)
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._is_resyncing = False
        self._is_sending = False
        self._watched: dict[JobId, Callable[[], None]] = {}
        try:
            self._updates = await self.updates()
        except MntrainError as error:
            problem, _ = self.problem_of(error, 400)
            await self.write_message(page_json(Refused(problem=problem)))
            self.close(1011, "no cluster")
            return
        if self.ws_connection is None or self.ws_connection.is_closing():
            return  # the page closed while the cluster was opening
        for message in self._updates.greeting(self.get_query_argument("stream", ""), self._since()):
            self._queue(message)
        self._updates.listen(self._queue)

    def on_message(self, message: str | bytes) -> None:
        try:
            if len(message) > MOST_MESSAGE_BYTES:
                raise msgspec.DecodeError("too long")
            self._take(page_decoder.decode(message))
        except (msgspec.MsgspecError, RecursionError) as error:
            problem = Problem(kind=Kind.BAD_REQUEST, cause=f"not readable: {error}")
            self._queue(page_json(Refused(problem=problem)))

    def on_close(self) -> None:
        updates: PageUpdates | None = getattr(self, "_updates", None)
        if updates is not None:
            updates.forget(self._queue)
            for job_id in list(self._watched):
                self._unwatch(job_id)
        super().on_close()

    def _since(self) -> int:
        text = self.get_query_argument("since", "0")
        return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else 0

    def _take(self, message: PageMessage) -> None:
        match message:
            case Watch(job_id=job_id, stream=stream, since=since):
                self._watch(job_id, stream, since)
            case Unwatch(job_id=job_id):
                self._unwatch(job_id)

    def _watch(self, job_id: JobId, stream: str, since: int) -> None:
        self._unwatch(job_id)
        if not is_job_id(job_id) or self._updates.job(job_id) is None:
            self._refuse(job_id, job_not_found(job_id).problem)
        elif len(self._watched) >= MOST_WATCHED:
            cause, fix = f"this page already watches {MOST_WATCHED} jobs", "close a live view"
            self._refuse(job_id, Problem(kind=Kind.TOO_MANY, cause=cause, fix=fix))
        else:
            try:
                unwatch = self._updates.watch(job_id, self._send_series, stream, since)
            except MntrainError as error:  # its nodes have just deleted it
                self._refuse(job_id, error.problem)
            else:
                self._watched[job_id] = unwatch

    def _unwatch(self, job_id: JobId) -> None:
        unwatch = self._watched.pop(job_id, None)
        if unwatch is not None:
            unwatch()

    def _refuse(self, job_id: JobId, problem: Problem) -> None:
        self._queue(page_json(Refused(problem=problem, job_id=job_id)))

    def _send_series(self, series: JobSeries) -> None:
        self._queue(page_json(SeriesSent(series=series)))

    # sending never blocks the caller

    def _queue(self, message: bytes) -> None:
        waiting = self._waiting_bytes + len(message)
        is_too_much = len(self._waiting) >= MOST_WAITING or waiting > MOST_WAITING_BYTES
        if is_too_much and not self._is_resyncing:
            self._resync()
        else:
            self._put(message)
        if not self._is_sending:
            self._is_sending = True
            IOLoop.current().add_callback(self._send)

    def _resync(self) -> None:
        """Replace the queued messages with a snapshot, as the page is too far behind."""
        self._is_resyncing = True
        self._waiting.clear()
        self._waiting_bytes = 0
        for message in self._updates.greeting("", 0):
            self._put(message)
        for job_id in list(self._watched):
            self._watch(job_id, "", 0)
        self._is_resyncing = False

    def _put(self, message: bytes) -> None:
        self._waiting.append(message)
        self._waiting_bytes += len(message)

    async def _send(self) -> None:
        try:
            while self._waiting:
                message = self._waiting.popleft()
                self._waiting_bytes -= len(message)
                await self.write_message(message)
        except (WebSocketClosedError, OSError):
            self._waiting.clear()
        finally:
            self._is_sending = False
