"""The doctor's route: its answer, and who is refused it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from jupyter_mntrain.doctor.every import EVERY
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.server.long_works import WorkState
from jupyter_mntrain.server.messages import DoctorAnswer
from jupyter_mntrain.trust.authority import Subject
from tests.agent.live import free_port
from tests.cluster.conftest import wait_for
from tests.doctor.healthy import with_disk
from tests.server.conftest import CLUSTER, JOB_FILE, Served, refused, served_authority
from tests.server.live_server import LiveServer
from tests.trusted import make_credentials
from tests.wording import says

# Each starts Jupyter servers of its own.
pytestmark = pytest.mark.slow


def examined(served: Served, *nodes: str) -> DoctorAnswer:
    answer = served.server.ask("POST", "/doctor", {"nodes": nodes})
    assert answer.status_code == 200, answer.text
    return msgspec.json.decode(answer.content, type=DoctorAnswer)


def test_all_nodes_are_examined_and_every_check_has_its_title(served: Served) -> None:
    found = examined(served)
    assert sorted(found.report.nodes) == ["node1", "node2"]
    assert found.report.can_launch
    assert [(one.id, one.title) for one in found.checks] == [(c.id, c.title) for c in EVERY]


def test_only_the_named_nodes_are_examined(served: Served) -> None:
    agent, facts = served.agents[0], served.agents[0].facts
    agent.facts = None
    try:
        report = examined(served, "node1").report
    finally:
        agent.facts = facts
    assert report.nodes == ("node1",)
    assert {one.level for one in report.findings} == {"unknown"}


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        pytest.param({"nodes": ["nobody"]}, "bad-spec", id="unknown node"),
        pytest.param({"nodes": 3}, "bad-request", id="no list"),
        pytest.param({"node": "node1"}, "bad-request", id="unknown field"),
    ],
)
def test_what_cannot_be_examined_is_refused(served: Served, body: object, kind: str) -> None:
    refused(served.server.ask("POST", "/doctor", body), 400, kind)


@pytest.fixture
def watching(served: Served, tmp_path: Path) -> Iterator[LiveServer]:
    """A server of somebody who may only watch."""
    own = tmp_path / "home" / ".config" / "mntrain" / "clusters" / CLUSTER
    own.mkdir(parents=True)
    make_credentials(own, Subject(role="viewer", name="kim"), of=served_authority())
    addresses = " ".join(agent.where for agent in served.agents)
    server = LiveServer(tmp_path / "home", free_port("127.0.0.1"), CLUSTER, addresses)
    try:
        yield server.start()
    finally:
        server.end()


def test_who_may_only_watch_is_refused(watching: LiveServer) -> None:
    wait_for(lambda: watching.get("/status")["is_read_only"])
    problem = refused(watching.ask("POST", "/doctor", {}), 409, "not-allowed")
    assert says("read-only", problem["cause"])
    assert problem["fix"]


def test_the_nodes_of_a_job_are_examined_for_what_it_reads(served: Served) -> None:
    job_id = served.add_job(state="failed")
    answer = served.server.ask("POST", "/doctor", {"job": job_id})
    assert answer.status_code == 200, answer.text
    report = msgspec.json.decode(answer.content, type=DoctorAnswer).report
    assert sorted(report.nodes) == ["node1", "node2"]
    refused(served.server.ask("POST", "/doctor", {"job": "j-0000dead"}), 404, "no-such-job")


def mended(server: LiveServer, remedy: dict[str, str]) -> WorkState:
    """The end of a remedy."""
    return ended(server, "/doctor/remedy", remedy)


def ended(
    server: LiveServer, route: str, asked: object, meanwhile: Callable[[], object] = bool
) -> WorkState:
    """The end of a work: each answer says how far it is."""
    while True:
        meanwhile()
        answer = server.ask("POST", route, asked)
        assert answer.status_code == 200, answer.text
        state = msgspec.json.decode(answer.content, type=WorkState)
        if state.is_over:
            return state


REMEDY = {"push": "models:llama", "source": "node1", "node": "node2"}


def test_a_remedy_that_cannot_be_carried_out_says_why(served: Served) -> None:
    state = mended(served.server, REMEDY | {"source": "nobody"})
    assert state.problem is not None
    assert state.problem.kind is Kind.BAD_SPEC
    refused(served.server.ask("POST", "/doctor/remedy", REMEDY | {"push": "../x"}), 400, "bad-spec")


def test_a_job_is_started_to_see_whether_it_works(served: Served) -> None:
    job_id = served.add_job(state="failed")
    before = {one for agent in served.agents for one in agent.jobs}
    seen: set[str] = set()

    def end_it() -> None:
        """What stands in for its ranks fails, once both nodes have it: else one is canceled."""
        for one in set.intersection(*(set(agent.jobs) - before for agent in served.agents)):
            seen.add(one)
            for agent in served.agents:
                served.do(agent.finish, one, 1)

    state = ended(served.server, "/doctor/deep", {"job": job_id}, end_it)
    assert state.problem is None
    assert state.doctor is not None
    tried = [one for one in state.doctor.report.findings if one.check == "deep-step"]
    assert [one.level for one in tried] == ["stops", "stops"], state.doctor.report.findings
    assert {one.node for one in tried} == {"node1", "node2"}
    assert len(seen) == 1


@pytest.mark.parametrize("body", [{}, {"nodes": ["node1"]}])
def test_without_a_job_nothing_is_started(served: Served, body: object) -> None:
    refused(served.server.ask("POST", "/doctor/deep", body), 400, "bad-request")


def test_who_may_only_watch_mends_nothing(watching: LiveServer) -> None:
    wait_for(lambda: watching.get("/status")["is_read_only"])
    state = mended(watching, REMEDY)
    assert state.problem is not None
    assert state.problem.kind is Kind.NOT_ALLOWED


def test_a_launch_that_the_doctor_refuses_goes_ahead_if_the_page_says_so(served: Served) -> None:
    agent, facts = served.agents[0], served.agents[0].facts
    agent.facts = with_disk(facts, 0)
    try:
        answer = served.server.ask("POST", "/jobs", {"spec": JOB_FILE, "yes": True})
        assert answer.status_code == 409, answer.text
        refused_launch = answer.json()
        assert (refused_launch["kind"], refused_launch["node"]) == ("disk-full", agent.name)
        assert refused_launch["found"] == []
        assert "--skip-doctor" not in refused_launch["fix"]
        answer = served.server.ask(
            "POST", "/jobs", {"spec": JOB_FILE, "skips_doctor": True, "yes": True}
        )
        assert answer.status_code == 201, answer.text
    finally:
        agent.facts = facts
