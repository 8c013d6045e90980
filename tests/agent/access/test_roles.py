"""Roles: every request of every route, with every role. A new one must be put into the table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import pytest
from tornado.web import RequestHandler

from jupyter_mntrain.agent.http import MAY, ROUTES
from jupyter_mntrain.model.api import Route, TrustNews, stream_decoder
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.job import JobRecord
from jupyter_mntrain.model.records.probes import ProbeListen
from jupyter_mntrain.trust.certificates import Role, Subject, pem_of
from tests import trusted
from tests.agent.live import LiveAgent, free_port, launch
from tests.rows import same_rows
from tests.waiting import until

pytestmark = pytest.mark.agents

METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS")
SECRET, QUIET = "hf_" + "aBcDeFgHiJ" * 3, "a-value-that-only-ranks-know"
SCRIPT = f"""
import os, time
print("before", {SECRET!r}, "between", os.environ["DB_PASSWORD"], "after", flush=True)
time.sleep(600)
"""

VIEWERS = {
    (Route.NODE, "GET"),
    (Route.STREAM, "GET"),
    (Route.HISTORY, "GET"),
    (Route.JOBS, "GET"),
    (Route.JOB, "GET"),
    (Route.SPEC, "GET"),
    (Route.DELETION, "GET"),
    (Route.JOURNAL, "GET"),
    (Route.SAMPLES, "GET"),
    (Route.LOG, "GET"),
    (Route.LOG_TIMES, "GET"),
    (Route.CHECKPOINTS, "GET"),
    (Route.TRUST, "GET"),
    (Route.TRUST, "PUT"),
}
NODES = {
    (Route.LEASES, "POST"),
    (Route.LEASE, "DELETE"),
    (Route.JOB, "GET"),
    (Route.ATTEMPT, "PUT"),
    (Route.STOP, "POST"),
    (Route.PROBE_LISTEN, "POST"),
    (Route.PIECE, "GET"),
}


def test_every_request_is_in_the_table_and_for_these_roles() -> None:
    """Whoever adds a route decides here who may send it."""
    served = {
        (route, method)
        for route, _, handler in ROUTES
        for method in METHODS
        if getattr(handler, method.lower()) is not getattr(RequestHandler, method.lower())
    }
    same_rows(
        served,
        MAY,
        "nobody has decided who may send {}: say so at its handler, and add it here to"
        " VIEWERS or NODES if those may",
        "a handler in agent/http says who may send {}, which it does not serve: remove that",
    )
    expected: dict[Role, set[tuple[Route, str]]] = {
        "driver": served,
        "viewer": VIEWERS,
        "node": NODES,
    }
    for role, requests in expected.items():
        assert {request for request, roles in MAY.items() if role in roles} == requests, role


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LiveAgent, JobId]]:
    """An agent with a job that has secrets in its environment, files, arguments and log."""
    address = "127.88.1.1"
    state = tmp_path_factory.mktemp("node1")
    agent = LiveAgent("node1", address, free_port(address), state)
    try:
        agent.start()
        job = launch([agent], SCRIPT, environment={"DB_PASSWORD": QUIET})
        until(lambda: "after" in agent.get(f"/v1/jobs/{job}/log").text, "the job to speak")
        until(lambda: agent.record(job).part.state == "running", "it to run")
        yield agent, job
    finally:
        agent.end()


def client_of(role: Role, path: Path) -> httpx.Client:
    subject = Subject(role=role, name="ab" * 16 if role == "node" else "kim")
    made = trusted.make_credentials(path, subject)
    return httpx.Client(verify=made.unnamed_client, timeout=10)


@pytest.mark.parametrize("role", ["viewer", "node"])
def test_nobody_does_more_than_the_table_says(
    running: tuple[LiveAgent, JobId], tmp_path: Path, role: Role
) -> None:
    agent, job = running
    before = agent.record(job)
    bodies = {
        Route.PROBE_LISTEN: ProbeListen(address=agent.address),
        Route.TRUST: TrustNews(revocations=pem_of(trusted.authority().revocations((), 1))),
    }
    with client_of(role, tmp_path) as client:
        for route, _, _ in ROUTES:
            parts = {"attempt": "1", "port": "29500", "rank": "0", "sha256": "0" * 64}
            path = route.format(job_id=job, transfer="0" * 64, piece="0", **parts)
            for method in METHODS:
                body = msgspec.json.encode(bodies.get(route, {}))
                request = client.build_request(method, f"{agent.url}{path}", content=body)
                answer = client.send(request, stream=True)  # a stream does not end
                status = answer.status_code
                answer.close()
                where = (role, method, path, status)
                if role in MAY.get((route, method), ()):
                    # A node may not act on a job that it has no part in, nor learn that it exists.
                    assert status == 200 or (role == "node" and status in {403, 404}), where
                else:
                    assert status in {403, 405}, where
    assert agent.record(job).part == before.part, "nothing happened to the job"


def test_a_viewer_sees_everything_but_secrets(
    running: tuple[LiveAgent, JobId], tmp_path: Path
) -> None:
    agent, job = running
    with client_of("viewer", tmp_path) as client:
        log = client.get(f"{agent.url}/v1/jobs/{job}/log").text
        assert log == agent.get(f"/v1/jobs/{job}/log").text.replace(
            SECRET, "*" * len(SECRET)
        ).replace(QUIET, "*" * len(QUIET))
        # Not even byte by byte.
        start = agent.get(f"/v1/jobs/{job}/log").text.index(SECRET)
        for offset in range(start, start + len(SECRET)):
            asked = f"{agent.url}/v1/jobs/{job}/log?offset={offset}&limit=1"
            assert client.get(asked).text == "*"
        answers = [
            client.get(f"{agent.url}{path}").text for path in ("/v1/jobs", f"/v1/jobs/{job}")
        ]
        with client.stream("GET", f"{agent.url}/v1/stream") as stream:
            answers.append(next(stream.iter_lines()))
    for answer in answers:
        assert SECRET not in answer
        assert QUIET not in answer
    record = msgspec.json.decode(answers[1], type=JobRecord)
    assert record.spec.environment == {"DB_PASSWORD": "***"}
    assert record.spec.files == {}
    assert record.part.state == "running"
    hello = stream_decoder.decode(answers[2])
    assert [one.job_id for one in hello.jobs] == [job]  # type: ignore[union-attr]
