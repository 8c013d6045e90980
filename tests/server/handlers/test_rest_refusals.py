"""Refusals of the REST routes: bad bodies, queries and routes, unknown jobs."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from jupyter_mntrain.model.ids import JobId
from tests.agent.live import free_port
from tests.cluster.conftest import wait_for
from tests.server.conftest import (
    CLUSTER,
    JOB_FILE,
    Served,
    put_job,
    refused,
)
from tests.server.live_server import BASE, TOKEN, LiveServer
from tests.standin.elsewhere import Elsewhere
from tests.standin.faults import Refuse
from tests.wording import says

# Each starts Jupyter servers of its own.
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("body", [{"uses": 0}, {"uses": 10**9}, {"expires_in_s": 0}])
def test_an_invitation_of_nobody_is_refused(served: Served, body: dict[str, int]) -> None:
    refused(served.server.ask("POST", "/invitations", body), 400, "bad-spec")


BAD_BODIES = {
    "unknown field": ("/nodes", {"address": "a:1", "adress": "b"}),  # codespell:ignore
    "missing field": ("/nodes", {}),
    "not JSON": ("/nodes", b"{"),
    "not UTF-8": ("/nodes", b'{"address": "\xff"}'),
    "wrong type": ("/links/measure", {"nodes": 3}),
    "uses is text": ("/invitations", {"uses": "two"}),
    "no time": ("/invitations", b'{"expires_in_s": 1e999}'),
    "neither": ("/jobs", {}),
    "both": ("/jobs", {"job_id": "j-00000001", "spec": JOB_FILE}),
    "grace below": ("/jobs/JOB/stop", {"grace_s": -1}),
    "grace above": ("/jobs/JOB/stop", {"grace_s": 1e9}),
    "grace is text": ("/jobs/JOB/stop", {"grace_s": "soon"}),
    "grace unknown": ("/jobs/JOB/stop", {"grace": 1}),
}


@pytest.mark.parametrize("what", BAD_BODIES)
def test_a_bad_body_is_named(served: Served, job_id: JobId, what: str) -> None:
    path, body = BAD_BODIES[what]
    refused(served.server.ask("POST", path.replace("JOB", job_id), body), 400, "bad-request")
    assert served.server.get(f"/jobs/{job_id}")["state"] == "running"


TOO_DEEP = pytest.param("x = " + 20_000 * "[", id="too deep")


@pytest.mark.parametrize("text", ["this is no TOML", "x = 1", "mntrain_job = 99", TOO_DEEP])
def test_a_bad_job_file_is_named(served: Served, text: str) -> None:
    refused(served.server.ask("POST", "/jobs", {"spec": text}), 400, "bad-spec")


def test_a_job_file_that_does_more_than_train_is_refused_with_what_it_does(served: Served) -> None:
    """As the command line asks about it."""
    before = served.server.get("/jobs")
    file = 'from_environment = ["AWS_SECRET_ACCESS_KEY"]\n' + JOB_FILE
    problem = refused(served.server.ask("POST", "/jobs", {"spec": file}), 400, "bad-spec")
    assert "AWS_SECRET_ACCESS_KEY" in problem["cause"]
    assert "script.py" in problem["cause"]
    assert '"yes": true' in problem["fix"]
    known = {one["job_id"] for one in before}
    assert {one["job_id"] for one in served.server.get("/jobs")} == known


@pytest.mark.parametrize(
    "address", ["a b:c", "a\0b:1", "é" * 70, pytest.param("a" * 100_000, id="too long")]
)
def test_a_bad_address_is_named(served: Served, address: str) -> None:
    refused(served.server.ask("POST", "/nodes", {"address": address}), 400, "bad-spec")


@pytest.mark.parametrize(
    "query",
    [
        "logs?tail=0",
        "logs?tail=many",
        "logs?tail=5001",
        "logs?rank=-1",
        "metrics?since=-1",
        "metrics?points=0",
    ],
)
def test_a_bad_query_is_named(served: Served, job_id: JobId, query: str) -> None:
    problem = refused(served.server.ask("GET", f"/jobs/{job_id}/{query}"), 400, "bad-request")
    assert says("from", problem["fix"])


@pytest.mark.parametrize("query", ["logs?rank=77", "logs?node=nobody"])
def test_a_log_of_nobody_is_refused(served: Served, job_id: JobId, query: str) -> None:
    refused(served.server.ask("GET", f"/jobs/{job_id}/{query}"), 400, "bad-spec")


@pytest.mark.parametrize("job", ["j-ffffffff", "nonsense", "..%2f..%2fetc"])
@pytest.mark.parametrize(
    ("verb", "path"),
    [
        ("GET", ""),
        ("GET", "/metrics"),
        ("GET", "/logs"),
        ("GET", "/spec"),
        ("POST", "/stacks"),
        ("POST", "/stop"),
        ("POST", "/kill"),
    ],
)
def test_an_unknown_job_is_refused(served: Served, job: str, verb: str, path: str) -> None:
    refused(served.server.ask(verb, f"/jobs/{job}{path}"), 404, "no-such-job")


def test_an_unknown_job_is_not_launched_again(served: Served) -> None:
    for job in ("j-ffffffff", "nonsense"):
        refused(served.server.ask("POST", "/jobs", {"job_id": job}), 404, "no-such-job")


@pytest.mark.parametrize("verb", ["GET", "POST", "DELETE"])
def test_an_unknown_route_is_refused(served: Served, verb: str) -> None:
    refused(served.server.ask(verb, "/nowhere/at/all"), 404, "no-such-route")


def test_a_wrong_verb_is_refused(served: Served) -> None:
    refused(served.server.ask("DELETE", "/status"), 405, "no-such-route")


def test_a_refusal_of_a_node_is_passed_on(served: Served) -> None:
    agent = served.agents[0]
    served.do(agent.faults["lease"].append, Refuse(cause="the GPUs are taken"))
    problem = refused(
        served.server.ask("POST", "/jobs", {"spec": JOB_FILE, "yes": True}), 409, "refused"
    )
    assert "the GPUs are taken" in problem["cause"]


def test_an_address_where_nobody_answers_is_a_bad_gateway(served: Served) -> None:
    address = f"127.0.0.1:{free_port('127.0.0.1')}"
    problem = refused(
        served.server.ask("POST", "/nodes", {"address": address}), 502, "connection-refused"
    )
    assert problem["fix"]


def test_a_job_on_silent_nodes_cannot_be_stopped(
    new_server: Callable[..., LiveServer], elsewhere: Elsewhere
) -> None:
    agents = [elsewhere.agent(f"node{n}", cluster=CLUSTER) for n in (1, 2)]
    job_id = JobId("j-00000077")
    for number, agent in enumerate(agents):
        elsewhere.do(put_job, agent, number, job_id)
    server = new_server(" ".join(agent.where for agent in agents))
    wait_for(lambda: server.ask("GET", f"/jobs/{job_id}").status_code == 200)
    for agent in agents:
        elsewhere.do(agent.die)
    refused(server.ask("POST", f"/jobs/{job_id}/stop"), 502, "connection-refused")


@pytest.mark.parametrize("length", ["²", "٣", "-1", "+1", "1_000", "9" * 5000])
def test_what_is_no_length_is_answered_with_400(served: Served, length: str) -> None:
    before = served.server.log
    head = (
        f"POST {BASE}mntrain/v1/nodes HTTP/1.1\r\nHost: 127.0.0.1:{served.server.port}\r\n"
        f"Authorization: token {TOKEN}\r\nContent-Length: {length}\r\n\r\n{{}}"
    )
    with socket.create_connection(("127.0.0.1", served.server.port), timeout=30) as connection:
        connection.sendall(head.encode())
        assert connection.recv(1000).startswith(b"HTTP/1.1 400 ")
    assert "Traceback" not in served.server.log.removeprefix(before)
