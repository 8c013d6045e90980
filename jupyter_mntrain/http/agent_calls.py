"""Agent calls: one typed method per route of :mod:`jupyter_mntrain.model.api`, over any transport.

Drivers send them with httpx, which agents do without: it would double their memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from jupyter_mntrain.model import api
from jupyter_mntrain.model.api import Route
from jupyter_mntrain.model.errors import MntrainError, NodeError, bad_argument, error_of
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.lifecycle.deletion import JobDeletion
from jupyter_mntrain.model.lifecycle.listing import JobPage, JobQuery
from jupyter_mntrain.model.lifecycle.running_changes import SettingsRequest
from jupyter_mntrain.model.records.checkpoint import NodeCheckpoints
from jupyter_mntrain.model.records.doctor.benchmark import BenchedLinks
from jupyter_mntrain.model.records.doctor.machine import (
    AskedScript,
    FoundScript,
    MachineFacts,
    MachineQuestion,
)
from jupyter_mntrain.model.records.doctor.paths import (
    PathEnd,
    PathHeard,
    PathListen,
    PathsAsked,
    PathTicket,
    PathTrial,
)
from jupyter_mntrain.model.records.job import JobRecord, JobSpec, RankStack
from jupyter_mntrain.model.records.node import (
    FoundWorkplace,
    LinkMeasurement,
    MachineDescription,
    Workplace,
)
from jupyter_mntrain.model.records.plan import (
    DEVICES_LIMIT_S,
    DeviceMeasurement,
    MeasureDevices,
    MeasuringDevices,
)
from jupyter_mntrain.model.records.probes import (
    IO_TIMEOUT_S,
    LONGEST_MEASURE_S,
    MeasureLease,
    ProbeListen,
    ProbeSend,
    ProbeTicket,
)
from jupyter_mntrain.model.text.conversation import ChatReply, ChatRequest
from jupyter_mntrain.model.text.label import JobLabel

DESCRIBED_S = 30.0
"""Added to that for the description of a machine in a report: nvidia-smi, and the packages."""

CHECKPOINTS_S = 30.0
"""Added to that for a list of checkpoints, or a deletion: thousands of files on a slow disk."""

PROBE_S = 4 * IO_TIMEOUT_S + LONGEST_MEASURE_S
"""Round trips, a warm-up, the longer time of a slow link, a stall, and what is still queued."""

DEVICES_S = DEVICES_LIMIT_S + 20.0
"""Added to that for a measurement of devices: what the programs may take, and an agent on a machine
that is busy."""

FACTS_S = 15.0
"""A node that is asked for what the doctor wants to know may take this much longer than usual to
answer: slow disks, and name servers."""

PATHS_S = 10.0
"""A node whose trials of all others take longer than usual may take this much longer to answer."""

BLOBS_S = 30.0
"""Added to that for a part of a project's file: it goes over a slow network, and to a slow disk."""

B = TypeVar("B", bytes, bytearray)
T = TypeVar("T")


class Into(NamedTuple):
    """Buffer that a response body is read into, if it has the announced size.

    Args:
        content: of the right size.
        came: told how many bytes are there, from the first on.
    """

    content: bytearray
    came: Callable[[int], object]


class Request(NamedTuple):
    """A request to an agent.

    Args:
        extra_s: the agent may take this much longer than usual.
        is_large: one of many with large bodies, all of them safe to repeat.
        into: takes the answer's body, which is empty then; where that cannot be, it is not.
    """

    method: str
    path: str
    body: bytes | None = None
    extra_s: float = 0.0
    is_large: bool = False
    into: Into | None = None


class Reply(NamedTuple):
    """An agent's answer, whether success or refusal."""

    is_success: bool
    body: bytes


class AgentCalls(ABC):
    """Calls one agent. Every method raises the same errors.

    Raises:
        NodeError: no usable answer; its kind says why. After one of ``MAYBE_DONE`` the agent may
            have acted, and repeating the request is safe.
        RefusedError: the agent refused the request.
        JobNotFoundError: the agent does not know the job.
        SpecError: the request is invalid.

    Args:
        address: ``host:port``.
        node: its name in errors.
    """

    def __init__(self, address: str, node: str) -> None:
        self.address = address
        self.node = node

    @abstractmethod
    async def send(self, request: Request) -> Reply:
        """Send one request.

        Raises:
            NodeError: no answer.
        """

    async def answer(self, request: Request) -> bytes:
        """Return the body of the agent's answer."""
        reply = await self.send(request)
        if not reply.is_success:
            raise refusal(reply.body, self.address, self.node)
        return reply.body

    async def ask(
        self,
        method: str,
        path: str,
        answer: type[T],
        body: object = None,
        *,
        extra_s: float = 0.0,
    ) -> T:
        """Send JSON, unless ``body`` is ``None``, and return the answer's JSON."""
        content = None if body is None else msgspec.json.encode(body)
        told = await self.answer(Request(method, path, content, extra_s))
        return self.read(msgspec.json.Decoder(answer).decode, told)

    def read(self, decode: Callable[[B], T], body: B) -> T:
        try:
            return decode(body)
        except msgspec.DecodeError as error:
            raise not_an_agent(self.address, self.node) from error

    async def lease(self, request: api.LeaseRequest) -> api.LeaseGrant:
        return await self.ask("POST", Route.LEASES, api.LeaseGrant, request)

    async def release(self, job_id: JobId, attempt: int) -> None:
        path = Route.LEASE.format(job_id=job_id, attempt=attempt)
        await self.ask("DELETE", path, dict[str, Any])

    async def port_status(self, port: int, interface: str | None = None) -> api.PortStatus:
        if not 1 <= port <= api.LAST_PORT:
            raise bad_argument("port", port, f"1 to {api.LAST_PORT}")
        query = f"?interface={quote(interface, safe='')}" if interface else ""
        return await self.ask("GET", Route.PORT.format(port=port) + query, api.PortStatus)

    async def news(self) -> api.TrustNews:
        return await self.ask("GET", Route.TRUST, api.TrustNews)

    async def tell_news(self, news: api.TrustNews) -> None:
        await self.ask("PUT", Route.TRUST, dict[str, Any], news)

    async def jobs(self, query: JobQuery) -> JobPage:
        words = urlencode(msgspec.to_builtins(query))
        return await self.ask("GET", f"{Route.JOBS}?{words}", JobPage)

    async def spec(self, job_id: JobId) -> JobSpec:
        return await self.ask("GET", Route.SPEC.format(job_id=job_id), JobSpec)

    async def job(self, job_id: JobId) -> JobRecord:
        return await self.ask("GET", Route.JOB.format(job_id=job_id), JobRecord)

    async def deletion(self, job_id: JobId) -> JobDeletion:
        path = Route.DELETION.format(job_id=job_id)
        return await self.ask("GET", path, JobDeletion, extra_s=CHECKPOINTS_S)

    async def delete_job(self, job_id: JobId, *, with_checkpoints: bool) -> JobDeletion:
        path = Route.DELETION.format(job_id=job_id) + f"?checkpoints={int(with_checkpoints)}"
        return await self.ask("DELETE", path, JobDeletion, extra_s=CHECKPOINTS_S)

    async def label(self, job_id: JobId, label: JobLabel) -> JobRecord:
        return await self.ask("PUT", Route.LABEL.format(job_id=job_id), JobRecord, label)

    async def deposit(self, request: api.StartRequest) -> JobRecord:
        return await self.ask("PUT", Route.JOB.format(job_id=request.job_id), JobRecord, request)

    async def start(self, request: api.StartRequest) -> JobRecord:
        path = Route.ATTEMPT.format(job_id=request.job_id, attempt=request.attempt.number)
        return await self.ask("PUT", path, JobRecord, request)

    async def stop(self, job_id: JobId, request: api.StopRequest) -> JobRecord:
        path = Route.STOP.format(job_id=job_id)
        return await self.ask("POST", path, JobRecord, request, extra_s=request.grace_s)

    async def save(self, job_id: JobId, request: api.SaveRequest) -> JobRecord:
        return await self.ask("POST", Route.SAVE.format(job_id=job_id), JobRecord, request)

    async def change_settings(self, job_id: JobId, request: SettingsRequest) -> JobRecord:
        return await self.ask("POST", Route.SETTINGS.format(job_id=job_id), JobRecord, request)

    async def chat(self, job_id: JobId, request: ChatRequest) -> ChatReply:
        return await self.ask("POST", Route.CHAT.format(job_id=job_id), ChatReply, request)

    async def checkpoints(self, job_id: JobId) -> NodeCheckpoints:
        path = Route.CHECKPOINTS.format(job_id=job_id)
        return await self.ask("GET", path, NodeCheckpoints, extra_s=CHECKPOINTS_S)

    async def checkpoints_at(self, path: str) -> NodeCheckpoints:
        query = urlencode({"path": path})
        route = f"{Route.CHECKPOINTS_AT}?{query}"
        return await self.ask("GET", route, NodeCheckpoints, extra_s=CHECKPOINTS_S)

    async def change_checkpoint(
        self, job_id: JobId, change: api.CheckpointChange
    ) -> NodeCheckpoints:
        path = Route.CHECKPOINTS.format(job_id=job_id)
        return await self.ask("POST", path, NodeCheckpoints, change, extra_s=CHECKPOINTS_S)

    async def missing_blobs(self, sizes: dict[str, int]) -> tuple[str, ...]:
        """Return which files' contents the node lacks; it keeps the others for a while.

        Args:
            sizes: bytes by SHA-256.
        """
        query = api.BlobQuery(sizes=sizes)
        answer = await self.ask("POST", Route.BLOBS, api.BlobsMissing, query, extra_s=BLOBS_S)
        return answer.sha256s

    async def put_blobs(self, contents: Sequence[bytes]) -> None:
        """Send the whole contents of small files, together no larger than one part."""
        body = msgspec.msgpack.encode(contents)
        await self.answer(Request("PUT", Route.BLOBS, body, BLOBS_S))

    async def put_blob(self, sha256: str, part: bytes, *, offset: int, size: int, key: str) -> None:
        """Send a part of a file's content.

        Args:
            size: of the whole.
            key: of this upload; its parts come in order.
        """
        path = Route.BLOB.format(sha256=sha256) + f"?size={size}&offset={offset}&key={key}"
        await self.answer(Request("PUT", path, part, BLOBS_S))

    async def blob(self, sha256: str, *, offset: int, limit: int) -> bytes:
        """Return a part of a file's content; empty after the end."""
        path = Route.BLOB.format(sha256=sha256) + f"?offset={offset}&limit={limit}"
        return await self.answer(Request("GET", path, None, BLOBS_S))

    async def description(self) -> MachineDescription:
        answer = MachineDescription
        return await self.ask("GET", Route.DESCRIPTION, answer, extra_s=DESCRIBED_S)

    async def workplace(self, asked: Workplace) -> FoundWorkplace:
        """Return what the node has of a job's folder, interpreter and environment."""
        return await self.ask("POST", Route.WORKPLACE, FoundWorkplace, asked, extra_s=DESCRIBED_S)

    async def machine_facts(self, question: MachineQuestion) -> MachineFacts:
        """Return what the doctor checks on the node."""
        return await self.ask("POST", Route.FACTS, MachineFacts, question, extra_s=FACTS_S)

    async def script(self, asked: AskedScript) -> FoundScript:
        """Return the text of a script in a folder of the node."""
        return await self.ask("POST", Route.SCRIPT, FoundScript, asked)

    async def paths_listen(self, request: PathListen) -> PathTicket:
        return await self.ask("POST", Route.PATHS_LISTEN, PathTicket, request)

    async def paths_try(self, request: PathsAsked) -> list[PathTrial]:
        path = Route.PATHS_TRY
        return await self.ask("POST", path, list[PathTrial], request, extra_s=PATHS_S)

    async def paths_end(self, request: PathEnd) -> PathHeard:
        return await self.ask("POST", Route.PATHS_END, PathHeard, request)

    async def stacks(self, job_id: JobId) -> list[RankStack]:
        return await self.ask("POST", Route.STACKS.format(job_id=job_id), list[RankStack])

    async def kill_rank(self, job_id: JobId, rank: int, request: api.KillRequest) -> JobRecord:
        path = Route.KILL_RANK.format(job_id=job_id, rank=rank)
        return await self.ask("POST", path, JobRecord, request)

    async def probe_lease(self, request: MeasureLease) -> None:
        await self.ask("POST", Route.PROBE_LEASE, dict[str, str], request)

    async def probe_listen(self, request: ProbeListen) -> ProbeTicket:
        return await self.ask("POST", Route.PROBE_LISTEN, ProbeTicket, request)

    async def probe_send(self, request: ProbeSend) -> LinkMeasurement:
        path = Route.PROBE_SEND
        extra_s = request.seconds + PROBE_S
        return await self.ask("POST", path, LinkMeasurement, request, extra_s=extra_s)

    async def measure_devices(self, request: MeasureDevices) -> list[DeviceMeasurement]:
        path = Route.PROBE_DEVICES
        return await self.ask("POST", path, list[DeviceMeasurement], request, extra_s=DEVICES_S)

    async def measuring_devices(self) -> MeasuringDevices:
        """Return what the node does while it measures its devices."""
        return await self.ask("GET", Route.PROBE_DEVICES, MeasuringDevices)

    async def keep_benched(self, links: BenchedLinks) -> None:
        await self.ask("PUT", Route.BENCHED, dict[str, str], links)


def refusal(body: bytes, address: str, node: str) -> MntrainError:
    """Make the error for an answer with a status other than 2xx."""
    try:
        problem = msgspec.json.decode(body, type=Problem)
    except msgspec.DecodeError:
        return not_an_agent(address, node)
    return error_of(msgspec.structs.replace(problem, node=node))


def not_an_agent(address: str, node: str) -> NodeError:
    """Make the error for an answer that does not come from an agent."""
    return NodeError(
        f"what listens on {address} is not an mntrain agent",
        fix="check the port; an agent prints its own when it starts",
        node=node,
        kind=Kind.NOT_AN_AGENT,
    )
