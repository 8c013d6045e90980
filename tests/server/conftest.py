"""One Jupyter server on two stand-in agents, for all tests that do not change it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import httpx
import pytest

from jupyter_mntrain.model.api import JobChanged
from jupyter_mntrain.model.ids import JobId, Rank, new_job_id
from jupyter_mntrain.model.records.job import JobState
from jupyter_mntrain.model.records.metrics import RankStart
from jupyter_mntrain.trust.authority import Authority
from tests.agent.conftest import new_agent
from tests.agent.live import free_port
from tests.cluster.conftest import elsewhere, wait_for
from tests.server.live_server import LiveServer
from tests.standin.agent import FakeAgent
from tests.standin.elsewhere import Elsewhere
from tests.standin.jobs import record
from tests.trusted import install_drivers

CLUSTER = "served"
SECRET, FILE = "hunter2-of-the-environment", "print('text of a file of the job')"
STEPS = 20

__all__ = ["elsewhere", "new_agent"]

JOB_FILE = """
mntrain_job = 1
entry = ["script.py"]
name = "from a file"
[[participants]]
node = "node1"
[files]
"script.py" = "print(1)"
"""


@dataclass
class Served:
    """The server and what it watches."""

    server: LiveServer
    elsewhere: Elsewhere
    agents: list[FakeAgent]

    def do(self, work: Callable[..., Any], *arguments: Any) -> Any:
        return self.elsewhere.do(work, *arguments)

    def add_job(self, *, state: JobState = "running", steps: int = STEPS) -> JobId:
        """A job on both nodes, one rank each, that the server knows."""
        job_id = new_job_id()
        self.do(put_job_on, self.agents, job_id, state)
        self.write(job_id, range(1, steps + 1))
        wait_for(lambda: self.server.ask("GET", f"/jobs/{job_id}").status_code == 200)
        return job_id

    def write(self, job_id: JobId, steps: range) -> None:
        for number, agent in enumerate(self.agents):
            self.do(agent.steps, job_id, number, steps)


def put_job_on(agents: Sequence[FakeAgent], job_id: JobId, state: JobState = "running") -> None:
    """On all of these before anybody asks one of them: a node without its record has lost it."""
    for number, agent in enumerate(agents):
        put_job(agent, number, job_id, state)


def put_job(agent: FakeAgent, number: int, job_id: JobId, state: JobState = "running") -> None:
    spec = {"environment": {"TOKEN": SECRET}, "files": {"script.py": FILE}}
    agent.jobs[job_id] = record(number, state, job_id=job_id, spec=spec)
    agent.logs[job_id] = b"".join(
        f"[{agent.name} rank {number}] line {line}\n".encode() for line in range(30)
    )
    agent.write(
        job_id,
        RankStart(
            time_s=0.0,
            rank=Rank(number),
            local_rank=0,
            world_size=2,
            pid=1,
            host=agent.name,
            neighbors=(1 - number,),
        ),
    )
    agent.say(JobChanged(record=agent.jobs[job_id].without_files()))


@cache
def served_authority() -> Authority:
    """Of the served cluster alone: real agents of other tests are none of its nodes."""
    return Authority.make(CLUSTER)


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    others = Elsewhere(itertools.repeat("127.0.0.1"))
    own = {"cluster": CLUSTER, "authority": served_authority()}
    agents = [others.agent(f"node{number}", **own) for number in (1, 2)]
    addresses = " ".join(agent.where for agent in agents)
    home = tmp_path_factory.mktemp("server") / "home"
    install_drivers(home / ".config", of=served_authority())
    server = LiveServer(home, free_port("127.0.0.1"), CLUSTER, addresses).start()
    try:
        wait_for(lambda: [one["view"]["liveness"] for one in server.get("/nodes")] == ["up", "up"])
        yield Served(server, others, agents)
    finally:
        server.end()
        others.close()


@pytest.fixture
def new_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., LiveServer]]:
    made: list[LiveServer] = []

    def new(
        agents: str, cluster: str = CLUSTER, *, authority: Authority | None = None
    ) -> LiveServer:
        home = tmp_path_factory.mktemp("server") / "home"
        install_drivers(home / ".config", of=authority)
        server = LiveServer(home, free_port("127.0.0.1"), cluster, agents)
        made.append(server)
        return server.start()

    yield new
    for server in made:
        server.end()


@pytest.fixture(scope="module")
def job_id(served: Served) -> JobId:
    return served.add_job()


def refused(answer: httpx.Response, status: int, kind: str) -> dict[str, Any]:
    """The problem that a refusal carries, checked for its form."""
    assert answer.status_code == status, answer.text
    problem: dict[str, Any] = answer.json()
    assert set(problem) <= {"kind", "cause", "fix", "node"}
    assert problem["kind"] == kind
    assert problem["cause"]
    return problem
