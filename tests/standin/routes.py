"""A scripted agent's routes: those of `agent/http`, over its records in memory."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from tornado.iostream import StreamClosedError
from tornado.web import Application

from jupyter_mntrain.agent.attempt.supervisor import marks_among
from jupyter_mntrain.agent.jobs.ended_jobs import page_of
from jupyter_mntrain.agent.jobs.record_file import RecordFile
from jupyter_mntrain.metrics.downsampled.samples import NodeSamples
from jupyter_mntrain.model import api
from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.lifecycle.listing import JobQuery
from jupyter_mntrain.model.records.checkpoint import NodeCheckpoints
from jupyter_mntrain.model.records.job import TERMINAL
from jupyter_mntrain.model.records.metrics import encoder
from jupyter_mntrain.model.records.node import Capacity, LinkMeasurement
from jupyter_mntrain.model.records.probes import MeasureLease, ProbeListen, ProbeSend, ProbeTicket
from jupyter_mntrain.model.text.log_parts import LOG_OFFSET_HEADER, LOG_SIZE_HEADER, LogTimes
from tests.standin.doctor_routes import DOCTOR_ROUTES
from tests.standin.faults import (
    Refuse,
    ScriptedRefusalError,
)
from tests.standin.handler import Handler

if TYPE_CHECKING:
    from tests.standin.agent import FakeAgent

PORTS = itertools.count(30001)


class _Node(Handler):
    route = "node"

    def get(self) -> None:
        self.answer(self.agent.info)


class _History(Handler):
    route = "history"

    def get(self) -> None:
        names = ("since", "until", "points")
        self.agent.asked_history = {name: self.get_query_argument(name, "") for name in names}
        self.answer(self.agent.history)


class _Stream(Handler):
    route = "stream"

    async def get(self) -> None:
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        live = (record for record in self.agent.jobs.values() if record.is_live)
        jobs = tuple(record.without_files() for record in live)
        hello = api.Hello(node=self.agent.info, jobs=jobs)
        queue.put_nowait(msgspec.json.encode(hello) + b"\n")
        self.agent._listeners.add(queue)
        try:
            with contextlib.suppress(StreamClosedError):
                while (line := await queue.get()) is not None:
                    self.write(line)
                    await self.flush()
        finally:
            self.agent._listeners.discard(queue)


class _Leases(Handler):
    route = "lease"

    def post(self) -> None:
        self.answer(self.agent.lease(self.body_as(api.LeaseRequest)))


class _Lease(Handler):
    route = "release"

    def delete(self, job: str, attempt: str) -> None:
        if JobId(job) not in self.agent.jobs:
            self.agent.leases.pop((JobId(job), int(attempt)), None)
        self.answer({})


class _Jobs(Handler):
    route = "jobs"

    def get(self) -> None:
        names = JobQuery.__struct_fields__
        asked = {name: text for name in names if (text := self.get_query_argument(name, ""))}
        query = msgspec.convert(asked, JobQuery, strict=False)
        files = (RecordFile(Path(one.job_id), one) for one in self.agent.jobs.values())
        self.answer(page_of(files, query))


class _Job(Handler):
    route = "job"

    def get(self, job: str) -> None:
        if JobId(job) not in self.agent.jobs:
            raise ScriptedRefusalError(Refuse(cause="unknown", kind=Kind.NO_SUCH_JOB, status=404))
        self.answer(self.agent.jobs[JobId(job)].without_files())


class _Spec(_Job):
    route = "spec"

    def answer(self, content: Any) -> None:
        super().answer(self.agent.jobs[content.job_id].spec)


class _Start(Handler):
    route = "start"

    def put(self, job: str, attempt: str) -> None:
        self.answer(self.agent.start_part(self.body_as(api.StartRequest)).without_files())


class _Stop(Handler):
    route = "stop"

    def post(self, job: str) -> None:
        self.answer(self.agent.stop_part(JobId(job), self.body_as(api.StopRequest)).without_files())


class _Journal(Handler):
    route = "journal"

    async def get(self, job: str) -> None:
        agent, job_id = self.agent, JobId(job)
        since = int(self.get_query_argument("since"))
        follow = self.get_query_argument("follow", "0") == "1"
        with contextlib.suppress(StreamClosedError):
            while True:
                grown = agent._grown
                is_over = self._is_over(job_id)
                for line in agent.journals[job_id][since:]:
                    self.write(encoder.encode(line) + b"\n")
                    since = line.seq
                    if self._loses_reply:
                        await self.flush()
                        self.break_off()
                        return
                await self.flush()
                if not follow or is_over or agent._is_dead:
                    return
                await grown.wait()

    def _is_over(self, job_id: JobId) -> bool:
        record = self.agent.jobs.get(job_id)
        return record is None or record.part.state in TERMINAL


class _Samples(Handler):
    route = "samples"

    def get(self, job: str) -> None:
        nothing = NodeSamples(attempt=0, seq=0, is_whole=False)
        self.answer(self.agent.samples.get(JobId(job), nothing))


class _Log(Handler):
    route = "log"

    def get(self, job: str) -> None:
        log = self.agent.logs.get(JobId(job), b"")
        offset = int(self.get_query_argument("offset"))
        limit = min(int(self.get_query_argument("limit")), self.agent.log_limit)
        begin = max(0, len(log) + offset) if offset < 0 else offset
        self.set_header(LOG_SIZE_HEADER, str(len(log)))
        self.set_header(LOG_OFFSET_HEADER, str(begin))
        self.finish(log[begin : begin + limit])


class _LogTimes(Handler):
    route = "log_times"

    def get(self, job: str) -> None:
        begin, end = (int(self.get_query_argument(name)) for name in ("begin", "end"))
        marks = self.agent.log_times.get(JobId(job), ())
        self.answer(LogTimes(marks_among(marks, begin, end, time.time())))


class _Stacks(Handler):
    route = "stacks"

    def post(self, job: str) -> None:
        self.answer(self.agent.stacks.get(JobId(job), []))


class _Checkpoints(Handler):
    route = "checkpoints"

    def get(self, job: str) -> None:
        run = self.agent.jobs[JobId(job)].run
        self.answer(self.agent.checkpoints.get(run, NodeCheckpoints(run=run, directory="/x")))

    def post(self, job: str) -> None:
        run, change = self.agent.jobs[JobId(job)].run, self.body_as(api.CheckpointChange)
        listed = self.agent.checkpoints[run]
        if change.action == "delete":
            kept = [one for one in listed.checkpoints if one.manifest.step != change.step]
        else:
            kept = [
                msgspec.structs.replace(one, is_pinned=change.action == "pin")
                if one.manifest.step == change.step
                else one
                for one in listed.checkpoints
            ]
        self.agent.checkpoints[run] = msgspec.structs.replace(listed, checkpoints=tuple(kept))
        self.get(job)


class _CheckpointsAt(Handler):
    route = "checkpoints-at"

    def get(self) -> None:
        path = self.get_query_argument("path")
        nothing = NodeCheckpoints(run="", directory=path, is_there=False)
        self.answer(self.agent.kept.get(path, nothing))


class _MeasureLease(Handler):
    route = "measure lease"

    def post(self) -> None:
        try:
            self.agent.turn.take(self.body_as(MeasureLease), self.agent.training, self.agent.name)
        except RefusedError as error:
            self.refuse(Refuse(cause=error.cause, fix=error.problem.fix or "", kind=error.kind))
        else:
            self.answer({})


class _Listen(Handler):
    route = "listen"

    def post(self) -> None:
        request = self.body_as(ProbeListen)
        self.answer(ProbeTicket(port=next(PORTS), token=f"to {self.agent.name} {request.address}"))


class _Send(Handler):
    route = "send"

    def post(self) -> None:
        request = self.body_as(ProbeSend)
        assert request.token.startswith(f"to {request.peer}")
        capacity = Capacity(bytes_per_s=1e8, source="measured", time_s=1.0, condition="alone")
        self.answer(
            LinkMeasurement(
                sender=self.agent.name,
                receiver=request.peer,
                interface=request.interface,
                address=request.address,
                capacity=capacity,
            )
        )


def application(agent: FakeAgent) -> Application:
    job = r"/v1/jobs/(?P<job>[^/]+)"
    routes: list[tuple[str, type[Handler]]] = [
        (r"/v1/node", _Node),
        (r"/v1/stream", _Stream),
        *DOCTOR_ROUTES,
        (r"/v1/history", _History),
        (r"/v1/leases", _Leases),
        (r"/v1/leases/(?P<job>[^/]+)/(?P<attempt>\d+)", _Lease),
        (r"/v1/jobs", _Jobs),
        (job, _Job),
        (rf"{job}/attempts/(?P<attempt>\d+)", _Start),
        (rf"{job}/spec", _Spec),
        (rf"{job}/stop", _Stop),
        (rf"{job}/journal", _Journal),
        (rf"{job}/samples", _Samples),
        (rf"{job}/log", _Log),
        (rf"{job}/log/times", _LogTimes),
        (rf"{job}/stacks", _Stacks),
        (rf"{job}/checkpoints", _Checkpoints),
        (api.Route.CHECKPOINTS_AT, _CheckpointsAt),
        (r"/v1/probe/lease", _MeasureLease),
        (r"/v1/probe/listen", _Listen),
        (r"/v1/probe/send", _Send),
    ]
    return Application([(path, handler, {"agent": agent}) for path, handler in routes])
