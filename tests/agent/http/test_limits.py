"""Limits: what unauthenticated or greedy callers cannot do to an agent, and bad requests."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import ssl
import struct
import subprocess
import sys
from urllib.parse import quote

import httpx
import msgspec
import psutil
import pytest

from jupyter_mntrain.agent.access.limits import MOST_HANDSHAKES, MOST_SINKS_EACH
from jupyter_mntrain.agent.main import run
from jupyter_mntrain.agent.membership.state import Settings
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.probes import ProbeListen
from jupyter_mntrain.trust.certificates import Subject
from jupyter_mntrain.trust.credentials import TRUSTED
from tests import trusted
from tests.agent.live import free_port, resident_mb, start_request
from tests.trusted import driver_context, join
from tests.waiting import until
from tests.wording import says

pytestmark = pytest.mark.agents

JSON = "application/json"


def read_line(connection: ssl.SSLSocket) -> bytes:
    """The status line of a stream, which is then left open."""
    connection.sendall(b"GET /v1/stream HTTP/1.1\r\nHost: x\r\n\r\n")
    return connection.recv(4096).partition(b"\r\n")[0]


def test_all_drivers_of_a_host_are_served(agent, tmp_path):
    """50 drivers, and 70 notebooks of one of them, have one address."""
    contexts = [
        trusted.make_credentials(
            tmp_path / str(number), Subject(role="driver", name=f"driver-{number}")
        ).unnamed_client
        for number in range(50)
    ]
    with contextlib.ExitStack() as open_streams:
        for context in [*contexts, *[driver_context()] * 70]:
            plain = socket.create_connection((agent.address, agent.port), timeout=30)
            connection = open_streams.enter_context(context.wrap_socket(plain))
            assert read_line(connection) == b"HTTP/1.1 200 OK"
        assert agent.get("/v1/node").status_code == 200


def test_streams_of_a_member_are_bounded(new_agent, tmp_path):
    agent = new_agent(environment={"MNTRAIN_LIMITS_STREAMS_PER_MEMBER": "3"})
    other = trusted.make_credentials(tmp_path / "other", Subject(role="driver", name="other"))
    with contextlib.ExitStack() as open_streams:
        for _ in range(3):
            assert open_streams.enter_context(agent.stream()).status_code == 200
        refused = agent.get("/v1/stream")
        assert (refused.status_code, refused.json()["kind"]) == (429, "too-many")
        assert agent.get("/v1/node").status_code == 200, "whoever asks briefly is answered"
        with httpx.stream("GET", f"{agent.url}/v1/stream", verify=other.unnamed_client) as theirs:
            assert theirs.status_code == 200, "they are counted for each member"
    until(lambda: _first_line(agent), "room for another one")


def _first_line(agent) -> bool:
    with agent.stream() as stream:
        return stream.status_code == 200


def test_strangers_take_nothing_from_members(agent):
    """Strangers, who have shown no certificate, even at the address of a member."""
    with contextlib.ExitStack() as open_ones:
        where = (agent.address, agent.port)

        def strangers(count: int) -> list[socket.socket]:
            return [
                open_ones.enter_context(socket.create_connection(where, timeout=20))
                for _ in range(count)
            ]

        first = strangers(MOST_HANDSHAKES + 300)[0]
        assert first.recv(1) == b"", "the oldest has lost its place"
        with agent.stream() as stream:
            assert stream.status_code == 200
            strangers(MOST_HANDSHAKES)
            assert agent.get("/v1/node").status_code == 200


def test_a_handshake_without_end_is_cut_off(new_agent):
    agent = new_agent(environment={"MNTRAIN_LIMITS_HANDSHAKE_TIMEOUT_S": "0.5"})
    with socket.create_connection((agent.address, agent.port), timeout=20) as stranger:
        assert stranger.recv(1) == b""
    assert agent.answers()


def test_probes_without_end_are_bounded(new_agent):
    """Each has a thread while it waits for its sender."""
    agent = new_agent(environment={"MNTRAIN_LINKS_TICKET_LIFE_S": "2"})
    process = psutil.Process(agent.process.pid)
    threads, before_mb = process.num_threads(), resident_mb(process.pid)
    most, codes = 0, set()
    with httpx.Client(verify=driver_context(), timeout=20) as client:
        body = msgspec.json.encode(ProbeListen(address=agent.address))

        def ask() -> int:
            return client.post(f"{agent.url}/v1/probe/listen", content=body).status_code

        for number in range(3000):
            codes.add(ask())
            if number % 100 == 0:
                most = max(most, process.num_threads())
        assert codes == {200, 429}
        assert most <= threads + MOST_SINKS_EACH + 4
        assert resident_mb(process.pid) < before_mb + 30
        until(lambda: ask() == 200, "a ticket to expire")
        bad = client.post(
            f"{agent.url}/v1/probe/listen",
            content=msgspec.json.encode(ProbeListen(address="192.0.2.1")),
        )
        assert bad.status_code in {409, 429}


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


LENGTHS = ["²", "٣", "-1", "+1", "1_000", "1 0", "0x10", "1e3", "9" * 5000, "5, 6"]


@pytest.mark.parametrize("length", LENGTHS)
def test_what_is_no_length_is_answered_with_400_and_logged_by_nobody(agent, length):
    before = agent.log()
    with agent.connect() as connection:
        head = f"POST /v1/leases HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{{}}"
        connection.sendall(head.encode())
        assert connection.recv(1000).startswith(b"HTTP/1.1 400 ")
    assert agent.get("/v1/node").status_code == 200
    assert agent.log() == before


@pytest.mark.parametrize("name", ["x" * 100_000, "\x1b]0;x\x07", "a\nb"])
def test_an_agent_takes_no_job_with_a_name_that_cannot_be_shown(agent, name):
    request = start_request([agent], "", JobId("j-00000001"), 1, 0, name=name)
    answer = agent.send("PUT", "/v1/jobs/j-00000001/attempts/1", request)
    assert (answer.status_code, answer.json()["kind"]) == (400, "bad-spec")


@pytest.mark.parametrize("number", ["²", "٣", "+1", "1_0", "9" * 5000, "1.0"])
def test_a_number_in_a_query_has_digits_only(agent, number):
    answer = agent.get(f"/v1/jobs/j-12345678/journal?since={quote(number)}")
    assert (answer.status_code, answer.json()["kind"]) == (400, "bad-request")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/jobs/j-12345678", 404, "no-such-job"),
        ("GET", "/v1/jobs/../../etc/passwd", 404, "no-such-route"),
        ("GET", "/nothing", 404, "no-such-route"),
        ("GET", "/v1/jobs/j-12345678/journal", 404, "no-such-job"),
        ("GET", "/v1/jobs/j-12345678/samples", 404, "no-such-job"),
        ("GET", "/v1/jobs/j-12345678/samples?points=99999999", 400, "bad-request"),
        ("GET", "/v1/jobs/j-12345678/samples?begin=9&end=8", 400, "bad-request"),
        ("GET", "/v1/jobs/j-12345678/samples?begin=1&by=%00", 400, "bad-request"),
        ("GET", "/v1/jobs/..%2F..%2Fetc", 404, "no-such-job"),
        ("POST", "/v1/jobs/nonsense/stop", 404, "no-such-job"),
        ("DELETE", "/v1/leases/nonsense/1", 404, "no-such-job"),
        ("PUT", "/v1/jobs/j-12345678/attempts/0", 404, "no-such-route"),
        ("POST", "/v1/probe/listen", 400, "bad-request"),
        ("POST", "/v1/leases", 400, "bad-request"),
        ("PUT", "/v1/jobs/j-12345678/attempts/1", 400, "bad-request"),
        ("DELETE", "/v1/node", 405, "no-such-route"),
    ],
)
def test_every_error_is_a_problem(agent, method, path, status, code):
    answer = agent.send(method, path, {"nonsense": 1}) if method != "GET" else agent.get(path)
    assert answer.status_code == status
    assert answer.json()["kind"] == code


def test_an_unexpected_error_has_an_id_that_the_log_has_beside_its_traceback(agent):
    trusted, away = agent.state / TRUSTED, agent.state / "away"
    trusted.rename(away)
    try:
        answer = agent.get("/v1/trust")
    finally:
        away.rename(trusted)
    assert answer.status_code == 500
    problem = msgspec.json.decode(answer.content, type=Problem)
    assert problem.kind is Kind.BROKEN
    assert problem.id
    assert problem.id in problem.fix
    assert says("see the agent's log on node1 for", problem.fix)
    logged = agent.log().partition(problem.id)[2]
    assert "Traceback" in logged
    assert "FileNotFoundError" in logged
    assert agent.get("/v1/trust").status_code == 200


def test_a_caller_that_hangs_up_at_once_is_no_error_of_the_agent(agent):
    before = len(agent.log())
    for _ in range(5):
        connection = agent.connect()
        agent.process.send_signal(signal.SIGSTOP)
        try:
            connection.sendall(b"GET /v1/node HTTP/1.1\r\nHost: x\r\n\r\n")
            # Reset, so that the agent finds the request and the end at the same time.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
        finally:
            agent.process.send_signal(signal.SIGCONT)
        assert agent.get("/v1/node").status_code == 200
    assert "Traceback" not in agent.log()[before:]


def run_agent(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "jupyter_mntrain.agent", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def test_what_cannot_start_says_why_in_one_line(agent, tmp_path, capsys):
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
        ("run", "--state-dir", str(agent.state)): f"another agent (pid {agent.process.pid} on ",
        ("leave", "--state-dir", str(stranger)): "this node is not a member of a cluster yet",
    }
    for options, words in cases.items():
        assert run(options) != 0
        said = capsys.readouterr().err
        assert says(words, said)
        assert said.count("\n") == 1, json.dumps(said)
    # These have begun to listen: a process of its own closes everything.
    for where, words in {
        tuple(free): "/nowhere does not run",
        tuple(taken): f"cannot listen on {agent.address}",
    }.items():
        done = run_agent("run", "--state-dir", str(member), *where)
        assert done.returncode != 0
        assert says(words, done.stderr)
        assert done.stderr.count("\n") == 1, json.dumps(done.stderr)
