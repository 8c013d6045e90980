"""Scripted agent: a real HTTPS server that speaks the agents' protocol over records in memory.

It starts no process. Each route can be made to refuse, to act and then lose the reply, to lose the
request, to be slow or to hang (`faults.py`).
"""

from __future__ import annotations

import asyncio
import ssl
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets

from jupyter_mntrain.agent.machine.links.turn import MeasureTurn
from jupyter_mntrain.metrics.downsampled.samples import NodeSamples
from jupyter_mntrain.metrics.node_history import NodeHistory
from jupyter_mntrain.model import api
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import JobId, NodeId, Rank
from jupyter_mntrain.model.lifecycle.events import Exited, Launched, RankStepped, RankUp, StopAsked
from jupyter_mntrain.model.lifecycle.state import apply, new_part
from jupyter_mntrain.model.records.checkpoint import NodeCheckpoints
from jupyter_mntrain.model.records.doctor.machine import MachineFacts
from jupyter_mntrain.model.records.job import JobRecord, PartStatus, RankStack
from jupyter_mntrain.model.records.metrics import JournalLine, PartChange, RankStep, Sample
from jupyter_mntrain.model.records.node import Gpu, Heartbeat, Interface, NodeInfo
from jupyter_mntrain.trust.authority import CERTIFICATE_LIFETIME, Authority
from jupyter_mntrain.trust.certificates import Subject
from jupyter_mntrain.trust.credentials import Credentials
from tests import trusted
from tests.doctor.healthy import healthy_facts
from tests.standin.faults import Fault, Refuse, ScriptedRefusalError
from tests.standin.nodes import node
from tests.standin.routes import PORTS, application


@cache  # most tests have a node1 and a node2, and a key takes longer to make than to use
def _credentials(
    node_id: str, of: Authority | None, issued: datetime | None, lifetime: timedelta
) -> Credentials:
    subject = Subject(role="node", name=node_id)
    with tempfile.TemporaryDirectory() as path:
        return trusted.make_credentials(Path(path), subject, of=of, now=issued, lifetime=lifetime)


@dataclass
class FakeAgent:
    """One node. Everything is readable and writable from the test, on the agent's own loop."""

    name: str
    address: str = "127.0.0.1"
    cluster: str = "default"
    node_id: str = ""
    hostname: str = ""
    boot_id: str = "boot"
    interfaces: tuple[Interface, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    versions: dict[str, Any] | None = None
    protocol: int = api.PROTOCOL
    heartbeat_every_s: float | None = None
    """``None`` = no heartbeats but those the test sends."""
    started_s: float = 0.0
    leases: dict[tuple[JobId, int], api.LeaseRequest] = field(default_factory=dict)
    stopped_early: set[tuple[JobId, int]] = field(default_factory=set)
    jobs: dict[JobId, JobRecord] = field(default_factory=dict)
    journals: dict[JobId, list[JournalLine]] = field(default_factory=lambda: defaultdict(list))
    samples: dict[JobId, NodeSamples] = field(default_factory=dict)
    logs: dict[JobId, bytes] = field(default_factory=dict)
    log_times: dict[JobId, tuple[tuple[int, float], ...]] = field(default_factory=dict)
    stacks: dict[JobId, list[RankStack]] = field(default_factory=dict)
    checkpoints: dict[JobId, NodeCheckpoints] = field(default_factory=dict)
    """By run."""
    kept: dict[str, NodeCheckpoints] = field(default_factory=dict)
    """Checkpoints elsewhere, by directory."""
    facts: MachineFacts | None = field(default_factory=healthy_facts)
    """For the doctor; ``None`` = it is an older agent."""
    blocked: set[str] = field(default_factory=set)
    """Names of the nodes that it cannot connect to, for the doctor."""
    lacks: set[str] = field(default_factory=set)
    """Paths of a job that are not there; all others are."""
    history: NodeHistory | None = None
    asked_history: dict[str, str] = field(default_factory=dict)
    """The newest query for it."""
    log_limit: int = 1 << 20
    requests: list[tuple[str, str]] = field(default_factory=list)
    answered: list[str] = field(default_factory=list)
    """Routes whose request was handled, also where its sender had gone."""
    turn: MeasureTurn = field(default_factory=MeasureTurn)
    training: dict[str, JobId] = field(default_factory=dict)
    """Jobs that are in the way of a measurement, by interface."""
    taken_ports: set[int] = field(default_factory=set)
    """Ports that another program uses."""
    faults: dict[str, list[Fault]] = field(default_factory=lambda: defaultdict(list))
    ends_streams_of_finished_jobs: bool = True
    port: int = 0
    authority: Authority | None = None
    """Of another cluster, for a change."""
    issued: datetime | None = None
    lifetime: timedelta = CERTIFICATE_LIFETIME
    """Of its certificate."""
    serial: int = 0
    """Of its certificate, once it has started."""

    def __post_init__(self) -> None:
        self.node_id = self.node_id or f"id-of-{self.name}"
        self._listeners: set[asyncio.Queue[bytes | None]] = set()
        self._grown = asyncio.Event()
        self._server: HTTPServer | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_dead = False

    @property
    def where(self) -> str:
        return f"{self.address}:{self.port}"

    @property
    def info(self) -> NodeInfo:
        basis = node(
            self.name,
            *self.interfaces,
            agent=self.where,
            gpus=self.gpus,
            versions=self.versions,
            node_id=self.node_id,
            hostname=self.hostname or None,
            boot_id=self.boot_id,
        )
        return msgspec.structs.replace(
            basis,
            cluster=self.cluster,
            protocol=self.protocol,
            started_s=self.started_s,
            revocations=1,
            python="/usr/bin/python3",
            jobs_directory=f"/state/{self.name}/jobs",
        )

    async def start(self) -> None:
        sockets = bind_sockets(self.port, self.address)
        self.port = sockets[0].getsockname()[1]
        self._is_dead = False
        self._server = HTTPServer(application(self), ssl_options=self._context())
        self._server.add_sockets(sockets)
        if self.heartbeat_every_s is not None:
            self._tasks.add(asyncio.create_task(self._heartbeat(self.heartbeat_every_s)))

    def _context(self) -> ssl.SSLContext:
        made = _credentials(self.node_id, self.authority, self.issued, self.lifetime)
        self.serial = made.certificate.serial_number
        return made.server

    async def die(self) -> None:
        """As if killed: connections break, nothing listens."""
        for task in self._tasks:
            task.cancel()
        for queue in self._listeners:
            queue.put_nowait(None)
        self._is_dead = True
        self._wake()
        if self._server is not None:
            self._server.stop()
            await self._server.close_all_connections()
            self._server = None

    def say(self, message: api.StreamMessage) -> None:
        """To everybody on the stream."""
        for queue in self._listeners:
            queue.put_nowait(msgspec.json.encode(message) + b"\n")

    def heartbeat(self) -> None:
        self.say(Heartbeat(time_s=time.time(), interfaces=()))

    def count(self, route: str) -> int:
        return sum(1 for _, asked in self.requests if asked == route)

    def finish(self, job_id: JobId, exit_code: int = 0) -> None:
        """The part ends by itself."""
        self.change(job_id, Exited(time_s=time.time(), exit_code=exit_code))

    def change(self, job_id: JobId, *events: Any) -> None:
        record = self.jobs[job_id]
        part = record.part
        for event in events:
            part = apply(part, event)
        self.set_part(job_id, part)

    def set_part(self, job_id: JobId, part: PartStatus) -> None:
        self.jobs[job_id] = msgspec.structs.replace(self.jobs[job_id], part=part)
        self.write(job_id, PartChange(time_s=time.time(), part=part))
        self.say(api.JobChanged(record=self.jobs[job_id].without_files()))

    def write(self, job_id: JobId, *samples: Sample) -> None:
        """Append to the journal."""
        journal = self.journals[job_id]
        for sample in samples:
            number = self.jobs[job_id].attempt.number if job_id in self.jobs else 1
            journal.append(JournalLine(seq=len(journal) + 1, attempt=number, body=sample))
        self._wake()

    def _wake(self) -> None:
        self._grown.set()
        self._grown = asyncio.Event()

    def steps(self, job_id: JobId, rank: int, numbers: Iterable[int]) -> None:
        for number in numbers:
            if record := self.jobs.get(job_id):
                part = apply(record.part, RankStepped(rank=Rank(rank), step=number))
                self.jobs[job_id] = msgspec.structs.replace(record, part=part)
            self.write(
                job_id,
                RankStep(time_s=float(number), rank=Rank(rank), step=number, step_s=1.0, tokens=10),
            )

    # What a real agent does, in as few lines as the protocol allows.

    def lease(self, request: api.LeaseRequest) -> api.LeaseGrant:
        self.leases[request.job_id, request.attempt] = request
        port = None if request.hold_port is None else request.hold_port or next(PORTS)
        return api.LeaseGrant(address=self.address, port=port, expires_s=time.time() + 15)

    def start_part(self, request: api.StartRequest) -> JobRecord:
        key = (request.job_id, request.attempt.number)
        if request.job_id in self.jobs:
            return self.jobs[request.job_id]
        if key not in self.leases or key in self.stopped_early:
            raise ScriptedRefusalError(Refuse(cause="holds no lease here", kind=Kind.NO_LEASE))
        place = next(p for p in request.attempt.placements if p.node_id == self.node_id)
        part = new_part(NodeId(self.node_id), self.name, place.ranks)
        self.jobs[request.job_id] = JobRecord(
            job_id=request.job_id,
            spec=request.spec,
            attempt=request.attempt,
            part=part,
            submitted_by=request.submitted_by,
        )
        ups = [RankUp(rank=status.rank, pid=100 + status.rank) for status in part.ranks]
        self.change(request.job_id, Launched(time_s=time.time()), *ups)
        return self.jobs[request.job_id]

    def stop_part(self, job_id: JobId, request: api.StopRequest) -> JobRecord:
        if request.attempt is not None and job_id not in self.jobs:
            self.stopped_early.add((job_id, request.attempt))
            self.leases.pop((job_id, request.attempt), None)
        if job_id not in self.jobs:
            raise ScriptedRefusalError(
                Refuse(cause="job is not known here", kind=Kind.NO_SUCH_JOB, status=404)
            )
        end = Exited(time_s=time.time(), exit_code=-15)
        self.change(job_id, StopAsked(reason=request.reason), end)
        self.leases.pop((job_id, self.jobs[job_id].attempt.number), None)
        return self.jobs[job_id]

    async def _heartbeat(self, every_s: float) -> None:
        while True:
            self.heartbeat()
            await asyncio.sleep(every_s)
