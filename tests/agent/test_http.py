"""One real agent, no torch: what it answers, and what it refuses in which words."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import httpx
import msgspec
import pytest

from jupyter_mntrain.model.api import (
    CLUSTER_HEADER,
    Hello,
    LeaseRequest,
    StopRequest,
    stream_decoder,
)
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.node import Beat

JOB = JobId("j-0000abcd")
JSON = "application/json"


@pytest.fixture
def agent(new_agent):
    return new_agent("--link-capacity", "lo=8gbit")


def lease(**changes):
    return LeaseRequest(job_id=JOB, attempt=1, ranks=1, **{"interface": "lo", **changes})


def test_it_says_what_it_is_without_torch(agent):
    info = agent.info()
    assert (info.name, info.cluster, info.trust) == ("node1", "test", "none")
    assert info.addresses == (f"{agent.address}:{agent.port}",)
    assert info.inventory.versions.torch is not None
    lo = next(i for i in info.inventory.interfaces if i.name == "lo")
    assert (lo.capacity.bytes_per_s, lo.capacity.source) == (1e9, "given")
    assert "libtorch" not in Path(f"/proc/{agent.process.pid}/maps").read_text()
    assert "unauthenticated" in agent.log()


def test_the_node_id_is_private_and_stays(agent, new_agent):
    path = agent.state / "node_id"
    assert path.stat().st_mode & 0o777 == 0o600
    before = agent.info().node_id
    agent.process.terminate()
    agent.process.wait(20)
    assert agent.start().info().node_id == before


def test_the_stream_says_hello_and_then_beats(agent):
    headers = {CLUSTER_HEADER: "test"}
    with httpx.stream("GET", f"{agent.url}/v1/stream", headers=headers, timeout=10) as stream:
        lines = stream.iter_lines()
        hello = stream_decoder.decode(next(lines))
        beat = stream_decoder.decode(next(lines))
    assert isinstance(hello, Hello)
    assert hello.node.name == "node1"
    assert isinstance(beat, Beat)
    assert "lo" in {rate.name for rate in beat.interfaces}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"interface": "eth99"}, "node1: there is no interface 'eth99'"),
        ({"gpus": [7]}, "node1: there is no GPU 7"),
    ],
)
def test_a_lease_that_cannot_be_is_refused_with_a_fix(agent, changes, says):
    answer = agent.send("POST", "/v1/leases", lease(**changes))
    assert answer.status_code == 409
    assert answer.json()["message"].startswith(says)
    assert answer.json()["hint"]
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
    agent.send("POST", "/v1/leases", lease())
    stop = StopRequest(reason="rolled back", attempt=1)
    assert agent.send("POST", f"/v1/jobs/{JOB}/stop", stop).status_code == 404
    assert agent.info().leases == ()


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/jobs/j-12345678", 404, "no-such-job"),
        ("GET", "/v1/jobs/../../etc/passwd", 404, "no-such-route"),
        ("GET", "/nothing", 404, "no-such-route"),
        ("GET", "/v1/jobs/j-12345678/journal", 404, "no-such-job"),
        ("POST", "/v1/leases", 400, "bad-request"),
        ("PUT", "/v1/jobs/j-12345678/attempts/1", 400, "bad-request"),
        ("DELETE", "/v1/node", 405, "http-405"),
    ],
)
def test_every_error_is_a_problem(agent, method, path, status, code):
    answer = agent.send(method, path, {"nonsense": 1}) if method != "GET" else agent.get(path)
    assert answer.status_code == status
    assert answer.json()["code"] == code


def test_another_cluster_a_web_page_and_a_rebound_name_are_refused(agent):
    body = msgspec.json.encode(lease())

    def post(**headers):
        return httpx.post(f"{agent.url}/v1/leases", content=body, headers=headers)

    other = post(**{CLUSTER_HEADER: "other", "Content-Type": JSON})
    assert (other.status_code, other.json()["code"]) == (421, "other-cluster")
    form = post(**{CLUSTER_HEADER: "test", "Content-Type": "text/plain"})
    assert (form.status_code, form.json()["code"]) == (415, "not-json")
    rebound = post(**{CLUSTER_HEADER: "test", "Content-Type": JSON, "Host": "evil.example"})
    assert (rebound.status_code, rebound.json()["code"]) == (421, "foreign-host")
    assert agent.info().leases == ()


def run_agent(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "jupyter_mntrain.agent", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def test_what_cannot_start_says_why_in_one_line(agent, tmp_path):
    taken = ["--address", agent.address, "--port", str(agent.port)]
    cases = {
        ("--cluster", "my cluster!"): "cluster name 'my cluster!' has characters",
        ("--link-capacity", "eth0=fast"): "'fast' is not a link rate",
        ("--state-dir", str(agent.state), *taken): f"another agent (pid {agent.process.pid})",
        ("--state-dir", str(tmp_path / "x"), *taken): f"cannot listen on {agent.address}",
    }
    for options, says in cases.items():
        done = run_agent(*options)
        assert done.returncode != 0
        assert says in done.stderr
        assert done.stderr.count("\n") == 1, json.dumps(done.stderr)
