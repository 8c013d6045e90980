"""One real agent, no torch: what it answers, and what it refuses in which words."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import pytest

from jupyter_mntrain.agent.access.limits import MOST_CONNECTIONS_EACH, MOST_STREAMS_EACH
from jupyter_mntrain.agent.membership.state import Settings
from jupyter_mntrain.model.api import (
    Goodbye,
    Hello,
    LeaseRequest,
    NodeChanged,
    StopRequest,
    stream_decoder,
)
from jupyter_mntrain.model.ids import JobId, new_job_id
from jupyter_mntrain.model.records.node import Beat
from tests.agent.live import LiveAgent, free_port, start_request
from tests.agent.live import lease as live_lease
from tests.trusted import driver_context, join
from tests.waiting import until
from tests.wording import says

JOB = JobId("j-0000abcd")
JSON = "application/json"


@pytest.fixture(scope="module")
def agent(tmp_path_factory) -> Iterator[LiveAgent]:
    """One for all requests that leave it as it was: starting takes a second."""
    worker = 100 + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    address = f"127.{worker}.1.1"
    state = tmp_path_factory.mktemp("node1")
    made = LiveAgent("node1", address, free_port(address), state)
    try:
        yield made.start("--link-capacity", "lo=8gbit")
    finally:
        made.end()


@pytest.fixture(autouse=True)
def nothing_promised(request):
    """Whatever a test leased is given back."""
    yield
    if "agent" in request.fixturenames:
        agent = request.getfixturevalue("agent")
        if agent.process.poll() is None:
            for one in agent.info().leases:
                agent.send("DELETE", f"/v1/leases/{one.job_id}/{one.attempt}", {})


def lease(**changes):
    return LeaseRequest(job_id=JOB, attempt=1, ranks=1, **{"interface": "lo", **changes})


def test_it_says_what_it_is_without_torch(agent):
    info = agent.info()
    assert (info.name, info.cluster, info.revocations) == ("node1", "test", 1)
    assert info.certificate_expires_s > time.time()
    assert info.addresses == (f"{agent.address}:{agent.port}",)
    assert info.inventory.versions.torch is not None
    lo = next(i for i in info.inventory.interfaces if i.name == "lo")
    assert (lo.capacity.bytes_per_s, lo.capacity.source) == (1e9, "given")
    assert "libtorch" not in Path(f"/proc/{agent.process.pid}/maps").read_text()
    assert "loopback only" in agent.log()


def test_the_node_id_is_private_and_stays(new_agent):
    agent = new_agent()
    path = agent.state / "node_id"
    assert path.stat().st_mode & 0o777 == 0o600
    before = agent.info().node_id
    agent.process.terminate()
    agent.process.wait(20)
    assert agent.start().info().node_id == before


def test_the_stream_says_hello_and_then_beats(agent):
    with agent.stream() as stream:
        lines = stream.iter_lines()
        hello = stream_decoder.decode(next(lines))
        beat = stream_decoder.decode(next(lines))
    assert isinstance(hello, Hello)
    assert hello.node.name == "node1"
    assert isinstance(beat, Beat)
    assert "lo" in {rate.name for rate in beat.interfaces}


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"interface": "eth99"}, "no-interface", "'eth99'"),
        ({"gpus": [7]}, "no-gpu", "GPU 7"),
    ],
)
def test_a_lease_that_cannot_be_is_refused_with_a_fix(agent, changes, kind, words):
    answer = agent.send("POST", "/v1/leases", lease(**changes))
    assert answer.status_code == 409
    problem = answer.json()
    assert (problem["kind"], problem["node"]) == (kind, "node1")
    assert says(words, problem["cause"])
    assert problem["fix"]
    assert agent.info().leases == ()


def test_leases_are_granted_shown_and_given_back(agent):
    answer = agent.send("POST", "/v1/leases", lease(hold_port=0)).json()
    assert answer["address"] == agent.address
    assert answer["port"] > 0
    assert [(one.job_id, one.port) for one in agent.info().leases] == [(JOB, answer["port"])]
    agent.send("DELETE", f"/v1/leases/{JOB}/1", {})
    agent.send("DELETE", f"/v1/leases/{JOB}/1", {})
    assert agent.info().leases == ()


def test_a_stop_that_overtakes_its_start_wins(agent):
    job_id = new_job_id()
    live_lease(agent, job_id, 1, None)
    stop = StopRequest(reason="rolled back", attempt=1)
    assert agent.send("POST", f"/v1/jobs/{job_id}/stop", stop).status_code == 404
    assert agent.info().leases == ()
    # Even if the lease is asked for again by a driver that does not know yet.
    request = start_request([agent], "", job_id, 1, live_lease(agent, job_id, 1, 0).port)
    late = agent.send("PUT", f"/v1/jobs/{job_id}/attempts/1", request)
    assert (late.status_code, late.json()["kind"]) == (409, "out-of-turn")
    assert agent.get("/v1/jobs").json() == []


def test_nothing_starts_without_its_lease(agent):
    def put(request, number=1):
        return agent.send("PUT", f"/v1/jobs/{JOB}/attempts/{number}", request)

    unleased = put(start_request([agent], "", JOB, 1, 29400))
    assert (unleased.status_code, unleased.json()["kind"]) == (409, "no-lease")
    granted = live_lease(agent, JOB, 1, 0)
    request = start_request([agent], "", JOB, 1, granted.port + 1)
    assert put(request).json()["kind"] == "no-lease"
    request = start_request([agent], "", JOB, 1, granted.port)
    assert put(request, number=2).json()["kind"] == "bad-request"
    files = {"../escape.py": ""}
    spoilt = msgspec.structs.replace(
        request, spec=msgspec.structs.replace(request.spec, files=files)
    )
    answer = put(spoilt)
    assert (answer.status_code, answer.json()["kind"]) == (400, "bad-spec")
    assert agent.get("/v1/jobs").json() == []
    assert list((agent.state / "jobs").iterdir()) == []
    assert agent.info().leases == ()


def test_a_port_that_is_taken_is_told_with_who_has_it(agent):
    with socket.create_server((agent.address, 0)) as server:
        port = server.getsockname()[1]
        answer = agent.send("POST", "/v1/leases", lease(hold_port=port))
    assert (answer.status_code, answer.json()["kind"]) == (409, "port-taken")
    assert f"(pid {os.getpid()})" in answer.json()["cause"]


def test_a_port_is_looked_at_without_being_held(agent):
    with socket.create_server((agent.address, 0)) as taken:
        port = taken.getsockname()[1]
        status = agent.get(f"/v1/port/{port}?interface=lo").json()
        assert status["address"] == agent.address
        assert status["problem"]["kind"] == "port-taken"
        assert str(port) in status["problem"]["cause"]
        assert port < status["next_free"] <= port + 50
        free = agent.get(f"/v1/port/{status['next_free']}").json()
        assert free == {"port": status["next_free"], "address": agent.address}
    assert "problem" not in agent.get(f"/v1/port/{port}").json()
    agent.send("POST", "/v1/leases", lease(hold_port=port))
    promised = agent.get(f"/v1/port/{port}").json()["problem"]
    assert promised["kind"] == "port-taken"
    assert JOB in promised["cause"]
    assert agent.get(f"/v1/port/{port}?interface=eth99").status_code == 409
    assert agent.get("/v1/port/99999").json()["problem"]["kind"] == "refused"
    assert agent.get("/v1/port/0").status_code == 404


@pytest.mark.slow
def test_a_lease_frees_itself_and_listeners_are_told(agent):
    with agent.stream() as stream:
        lines = map(stream_decoder.decode, stream.iter_lines())
        assert next(lines).node.leases == ()
        assert agent.send("POST", "/v1/leases", lease(expires_in_s=3.0)).status_code == 200
        # The node may be told anew for other reasons in between.
        news = (line.node.leases for line in lines if isinstance(line, NodeChanged))
        granted = next(leases for leases in news if leases)
        assert [one.job_id for one in granted] == [JOB]
        assert next(leases for leases in news if not leases) == ()


def test_a_lease_that_ended_unnoticed_is_news_when_it_is_granted_again(agent):
    agent.send("POST", "/v1/leases", lease(expires_in_s=0.2))
    while agent.info().leases:
        pass
    with agent.stream() as stream:
        lines = map(stream_decoder.decode, stream.iter_lines())
        assert next(lines).node.leases == ()
        assert agent.send("POST", "/v1/leases", lease(expires_in_s=3.0)).status_code == 200
        news = (line.node.leases for line in lines if isinstance(line, NodeChanged))
        assert next(leases for leases in news if leases)


def test_an_agent_that_ends_in_order_says_goodbye_to_its_listeners(new_agent):
    agent = new_agent()
    with agent.stream() as stream:
        lines = stream.iter_lines()
        next(lines)
        agent.process.terminate()
        *_, last = lines
    assert isinstance(stream_decoder.decode(last), Goodbye)
    assert agent.process.wait(20) == 0


def test_who_started_what_from_where_is_kept(agent):
    def lines() -> list[dict[str, str]]:
        text = (agent.state / "audit.log").read_text()
        return [json.loads(line) for line in text.splitlines()]

    job_id = new_job_id()
    request = start_request([agent], "pass", job_id, 1, 29500)
    agent.send("PUT", f"/v1/jobs/{job_id}/attempts/1", request)
    agent.send("POST", f"/v1/jobs/{job_id}/stop", StopRequest(reason="r" * 999))
    started, stopped = lines()[-2:]
    assert (started["what"], started["job"], started["from"]) == ("start", job_id, "127.0.0.1")
    assert started["outcome"] == f"refused: job {job_id} has no lease here"
    assert (stopped["what"], stopped["who"]) == ("stop", "driver a-test")
    assert (agent.state / "audit.log").stat().st_mode & 0o777 == 0o600


def test_streams_without_end_are_bounded(agent, new_agent):
    own = new_agent()
    with contextlib.ExitStack() as open_streams:
        for _ in range(MOST_STREAMS_EACH):
            assert open_streams.enter_context(own.stream()).status_code == 200
        refused = own.get("/v1/stream")
        assert (refused.status_code, refused.json()["kind"]) == (429, "too-many")
        assert own.get("/v1/node").status_code == 200, "whoever asks briefly is answered"
    until(lambda: _first_line(own), "room for another one")


def _first_line(agent) -> bool:
    with agent.stream() as stream:
        return stream.status_code == 200


def test_one_address_cannot_take_all_connections(new_agent):
    """Strangers, who have shown no certificate."""
    own = new_agent()
    with contextlib.ExitStack() as open_ones:
        where = (own.address, own.port)
        mine = [
            open_ones.enter_context(socket.create_connection(where, timeout=20))
            for _ in range(MOST_CONNECTIONS_EACH + 5)
        ]
        assert mine[-1].recv(1) == b"", "hung up"
        with (
            socket.create_connection(where, 20, source_address=("127.0.0.77", 0)) as other,
            driver_context().wrap_socket(other) as connection,
        ):
            assert connection.version() == "TLSv1.3"
    until(own.answers, "it to answer again")


def test_a_body_that_is_nested_too_deeply_is_refused(agent):
    body = b'{"a":' * 20_000
    answer = httpx.post(f"{agent.url}/v1/leases", content=body, verify=driver_context())
    assert (answer.status_code, answer.json()["kind"]) == (400, "bad-request")


def test_headers_without_end_are_cut_off(agent):
    with agent.connect() as connection:
        connection.sendall(b"GET /v1/node HTTP/1.1\r\nHost: x\r\n")
        with contextlib.suppress(OSError):
            for number in range(40):
                connection.sendall(b"X-%d: %s\r\n" % (number, b"x" * 1000))
            assert connection.recv(1000) == b""
    assert agent.get("/v1/node").status_code == 200


def test_a_body_that_is_too_long_is_refused_in_words(agent):
    answer = agent.send("POST", "/v1/leases", {"padding": "x" * (9 << 20)})
    assert (answer.status_code, answer.json()["kind"]) == (413, "too-large")
    assert agent.get("/v1/node").status_code == 200


def test_a_link_is_measured_between_two_agents_and_its_capacity_kept(new_agent):
    one, two = new_agent(), new_agent()
    ticket = two.send("POST", "/v1/probe/listen", {"address": two.address}).json()
    request = {
        "interface": "lo",
        "source_address": one.address,
        "address": two.address,
        "peer": "node2",
        "seconds": 0.2,
        **ticket,
    }
    measured = one.send("POST", "/v1/probe/send", request).json()
    assert measured["bytes_per_s"] > 1e7
    one.process.terminate()
    one.process.wait(20)
    lo = next(i for i in one.start().info().inventory.interfaces if i.name == "lo")
    assert (lo.capacity.source, lo.capacity.peer) == ("measured", "node2")
    nowhere = one.send("POST", "/v1/probe/send", request | {"interface": "eth99"})
    assert nowhere.json()["kind"] == "bad-request"
    assert "eth99" in nowhere.json()["cause"]


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/jobs/j-12345678", 404, "no-such-job"),
        ("GET", "/v1/jobs/../../etc/passwd", 404, "no-such-route"),
        ("GET", "/nothing", 404, "no-such-route"),
        ("GET", "/v1/jobs/j-12345678/journal", 404, "no-such-job"),
        ("GET", "/v1/jobs/..%2F..%2Fetc", 404, "no-such-job"),
        ("POST", "/v1/jobs/nonsense/stop", 404, "no-such-job"),
        ("DELETE", "/v1/leases/nonsense/1", 404, "no-such-job"),
        ("PUT", "/v1/jobs/j-12345678/attempts/0", 404, "no-such-route"),
        ("POST", "/v1/probe/listen", 400, "bad-request"),
        ("POST", "/v1/leases", 400, "bad-request"),
        ("PUT", "/v1/jobs/j-12345678/attempts/1", 400, "bad-request"),
        ("DELETE", "/v1/node", 405, "bad-request"),
    ],
)
def test_every_error_is_a_problem(agent, method, path, status, code):
    answer = agent.send(method, path, {"nonsense": 1}) if method != "GET" else agent.get(path)
    assert answer.status_code == status
    assert answer.json()["kind"] == code


def run_agent(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "jupyter_mntrain.agent", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def test_what_cannot_start_says_why_in_one_line(agent, tmp_path):
    there = ["--listen", agent.address, "--port"]
    taken, free = [*there, str(agent.port)], [*there, str(free_port(agent.address))]
    member, stranger = tmp_path / "x", tmp_path / "y"
    settings = Settings(
        name="x", listen=(), advertised=(), port=1, link_capacities=(), python="/nowhere"
    )
    join(member, settings, "test")
    cases = {
        ("start",): "'start'",
        ("run", "--state-dir", str(stranger), *free): "this node is not a member of a cluster yet",
        ("run", "--state-dir", str(member), *free): "/nowhere does not run",
        ("run", "--state-dir", str(agent.state)): f"another agent (pid {agent.process.pid} on ",
        ("run", "--state-dir", str(member), *taken): f"cannot listen on {agent.address}",
        ("leave", "--state-dir", str(stranger)): "this node is not a member of a cluster",
    }
    for options, words in cases.items():
        done = run_agent(*options)
        assert done.returncode != 0
        assert says(words, done.stderr)
        assert done.stderr.count("\n") == 1, json.dumps(done.stderr)
