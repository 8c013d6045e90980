"""Real agents for tests: started as users start them, spoken to over HTTP."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx
import msgspec
import psutil

from jupyter_mntrain.agent.attempt.processes import kill_all, marked
from jupyter_mntrain.agent.membership.state import Settings
from jupyter_mntrain.model.api import Hello, LeaseGrant, LeaseRequest, StartRequest, stream_decoder
from jupyter_mntrain.model.ids import JobId, Rank, new_job_id
from jupyter_mntrain.model.lifecycle.listing import JobPage
from jupyter_mntrain.model.records.job import (
    TERMINAL,
    Attempt,
    JobRecord,
    JobSpec,
    Participant,
    Placement,
)
from jupyter_mntrain.model.records.node import NodeInfo
from jupyter_mntrain.model.sources.slots import read_slots
from tests import trusted
from tests.agent.forking.python import forking_python
from tests.agent.known_python import give_known_python, keep_known_python
from tests.waiting import PATIENCE_S, until

REST_MB = 64.0
"""Most resident memory of an agent at rest: 60 MB, which ``benchmarks/agent_at_rest.py`` measures,
and what a system maps of libraries in advance if it has their files in its cache."""


def resident_mb(pid: int) -> float:
    return float(psutil.Process(pid).memory_info().rss / 1e6)


def free_port(address: str) -> int:
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


def free_range(address: str, count: int) -> int:
    """The first of so many free ports in a row, below those that systems give out by themselves:
    no test next to this one gets one of them meanwhile."""
    for first in range(20_000 + os.getpid() % 100 * 100, 32_000, count):
        with ExitStack() as held:
            try:
                for port in range(first, first + count):
                    held.enter_context(socket.socket()).bind((address, port))
            except OSError:
                continue
            return first
    raise OSError(f"no {count} free ports in a row on {address}")


@dataclass
class LiveAgent:
    """One agent process on a loopback address of its own."""

    name: str
    address: str
    port: int
    state: Path
    cluster: str = "test"
    process: subprocess.Popen[bytes] | None = None
    python: str = field(default_factory=forking_python)
    """Of the ranks."""
    is_slot: bool = False
    """Whether its state directory is a place in an allocation."""
    _core: int | None = field(default=None, repr=False, compare=False)
    _client: httpx.Client | None = field(default=None, repr=False, compare=False)

    def start(
        self,
        *options: str,
        core: int | None = None,
        under: Sequence[str] = (),
        environment: Mapping[str, str] = {},
    ) -> LiveAgent:
        """Args:
        core: it may use, with all that it starts, also when it is started again: ranks that
            each count on all cores spin while they wait for one another's threads.
        under: a command that runs it, in the same process.
        environment: next to this process's own.
        """
        settings = Settings(
            name=self.name,
            listen=(self.address,),
            advertised=(),
            port=self.port,
            link_capacities=(),
            python=self.python,
        )
        trusted.join(self.state, settings, self.cluster)
        give_known_python(self.state, self.python)
        command = [sys.executable, "-m", "jupyter_mntrain.agent", "run"]
        command += ["--slot" if self.is_slot else "--state-dir", str(self.state), *options]
        self._core = self._core if core is None else core
        if self._core is not None:
            command = ["taskset", "--cpu-list", str(self._core), *command]
        command = [*under, *command]
        with (self.state / "agent.log").open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
            )
        if self.is_slot:
            until(self._tells_its_port, f"{self.name} to tell its port; {self.log()}")
        until(self.answers, f"{self.name} to answer; {self.log()}")
        return self

    def _tells_its_port(self) -> bool:
        """Of the process that runs now."""
        assert self.process is not None
        assert self.process.poll() is None, self.log()
        started_s = psutil.Process(self.process.pid).create_time()
        for told in read_slots(self.state.parent):
            if (told.slot, told.state) == (self.name, "up") and told.written_s > started_s:
                self.port = int(told.addresses[0].rpartition(":")[2])
                return True
        return False

    def answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log()
        try:
            return self.get("/v1/node").status_code == 200
        except httpx.TransportError:
            return False

    def log(self) -> str:
        path = self.state / "agent.log"
        return path.read_text() if path.exists() else ""

    def kill(self) -> None:
        assert self.process is not None
        self._hang_up()
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """The agent and everything it ever started."""
        self._hang_up()
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(PATIENCE_S)
        keep_known_python(self.state, self.python)
        for attempt in self.state.glob("jobs/*/attempt-*"):
            kill_all(partial(marked, attempt))

    @property
    def where(self) -> str:
        return f"{self.address}:{self.port}"

    @property
    def url(self) -> str:
        return f"https://{self.where}"

    def get(self, path: str) -> httpx.Response:
        """Over a connection that is kept: a handshake takes an agent longer than most answers."""
        if self._client is not None:
            with suppress(httpx.TransportError):  # the agent was restarted, or hung up
                return self._client.get(f"{self.url}{path}")
            self._hang_up()
        self._client = httpx.Client(verify=trusted.driver_context(), timeout=PATIENCE_S)
        try:
            return self._client.get(f"{self.url}{path}")
        except httpx.TransportError:
            self._hang_up()
            raise

    def _hang_up(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def stream(self, path: str = "/v1/stream") -> AbstractContextManager[httpx.Response]:
        return httpx.stream(
            "GET", f"{self.url}{path}", verify=trusted.driver_context(), timeout=PATIENCE_S
        )

    def connect(self) -> ssl.SSLSocket:
        """A driver's connection, for what no library sends."""
        plain = socket.create_connection((self.address, self.port), timeout=30)
        # Or a body that follows its headers waits 40 ms for them to be acknowledged.
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return trusted.driver_context().wrap_socket(plain)

    def send(self, method: str, path: str, body: object) -> httpx.Response:
        content = msgspec.json.encode(body)
        return httpx.request(
            method, f"{self.url}{path}", verify=trusted.driver_context(), content=content
        )

    def info(self) -> NodeInfo:
        return msgspec.json.decode(self.get("/v1/node").content, type=NodeInfo)

    def record(self, job_id: JobId) -> JobRecord:
        return msgspec.json.decode(self.get(f"/v1/jobs/{job_id}").content, type=JobRecord)

    def spec(self, job_id: JobId) -> JobSpec:
        """With its files, which a record leaves out."""
        return msgspec.json.decode(self.get(f"/v1/jobs/{job_id}/spec").content, type=JobSpec)

    def records(self) -> list[JobRecord]:
        """Live ones and ended ones, as a driver hears of them."""
        with self.stream() as stream:
            hello = stream_decoder.decode(next(stream.iter_lines()))
        assert isinstance(hello, Hello)
        ended = msgspec.json.decode(self.get("/v1/jobs").content, type=JobPage)
        return [*hello.jobs, *ended.records]

    def ended(self, job_id: JobId) -> JobRecord:
        until(lambda: self.record(job_id).part.state in TERMINAL, f"the end of {job_id}")
        return self.record(job_id)


def launch(
    agents: list[LiveAgent],
    script: str,
    *,
    job_id: JobId | None = None,
    attempt: int = 1,
    port: int = 0,
    ahead_s: float = 0.0,
    gpus: tuple[int, ...] = (),
    **policy: Any,
) -> JobId:
    """Lease and start by hand, one rank per agent, as a driver does whose clock is ahead."""
    job_id = job_id or new_job_id()
    grants = [
        lease(agent, job_id, attempt, None if n else port, gpus) for n, agent in enumerate(agents)
    ]
    port = grants[0].port or 0
    request = start_request(agents, script, job_id, attempt, port, gpus=gpus, **policy)
    for agent in agents:
        request = msgspec.structs.replace(request, sent_s=time.time() + ahead_s)
        answer = agent.send("PUT", f"/v1/jobs/{job_id}/attempts/{attempt}", request)
        assert answer.status_code == 200, answer.text
    return job_id


def lease(
    agent: LiveAgent, job_id: JobId, attempt: int, port: int | None, gpus: tuple[int, ...] = ()
) -> LeaseGrant:
    request = LeaseRequest(
        job_id=job_id, attempt=attempt, ranks=1, gpus=gpus, interface="lo", hold_port=port
    )
    answer = agent.send("POST", "/v1/leases", request)
    assert answer.status_code == 200, answer.text
    return msgspec.json.decode(answer.content, type=LeaseGrant)


def start_request(
    agents: list[LiveAgent],
    script: str,
    job_id: JobId,
    attempt: int,
    port: int,
    *,
    gpus: tuple[int, ...] = (),
    **policy: Any,
) -> StartRequest:
    plan = policy.pop("plan", None)
    placed = Attempt(
        number=attempt,
        placements=tuple(
            Placement(
                node_id=agent.info().node_id,
                node=agent.name,
                node_rank=rank,
                first_rank=Rank(rank),
                nproc=1,
                gpus=gpus,
                interface="lo",
                address=agent.address,
                agent=(f"{agent.address}:{agent.port}",),
            )
            for rank, agent in enumerate(agents)
        ),
        master_address=agents[0].address,
        master_port=port,
        submitted_s=time.time(),
        plan=plan,
    )
    policy.setdefault("entry", ("script.py",))
    policy.setdefault("files", {"script.py": script})
    spec = JobSpec(
        participants=tuple(Participant(node=agent.name, gpus=gpus) for agent in agents),
        **policy,
    )
    return StartRequest(job_id=job_id, spec=spec, attempt=placed, submitted_by="a test")


@contextmanager
def two_agents(
    network: str,
    state: Path,
    cluster: str,
    environment: Mapping[str, str] = {},
    python: str | None = None,
) -> Iterator[list[LiveAgent]]:
    """node1 and node2 of a cluster, on ``network``'s addresses .1 and .2, with a core each.

    As nodes have them: ranks that each count on all cores of this machine wait for one another.
    """
    made = []
    for number in (1, 2):
        name, address = f"node{number}", f"{network}.{number}"
        port = free_port(address)
        own = python or forking_python()
        made.append(LiveAgent(name, address, port, state / name, cluster, python=own))
    try:
        for agent, core in zip(made, cycle(os.sched_getaffinity(0)), strict=False):
            agent.start(core=core, environment=environment)
        yield made
    finally:
        for agent in made:
            agent.end()


def addresses_of(agents: Sequence[LiveAgent]) -> str:
    """As ``$MNTRAIN_AGENTS`` wants them."""
    return " ".join(agent.where for agent in agents)
