"""Every answer and every refusal of the REST routes."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from jupyter_mntrain import __version__
from jupyter_mntrain.model.ids import JobId
from tests.agent.live import free_port
from tests.cluster.conftest import wait_for
from tests.server.conftest import CLUSTER, FILE, SECRET, STEPS, Served, put_job, served_authority
from tests.server.live_server import TOKEN, LiveServer
from tests.standin.elsewhere import Elsewhere
from tests.standin.faults import Refuse
from tests.wording import says

# Each starts Jupyter servers of its own.
pytestmark = pytest.mark.slow

JOB_FILE = """
mntrain_job = 1
entry = ["script.py"]
name = "from a file"
[[participants]]
node = "node1"
[files]
"script.py" = "print(1)"
"""


@pytest.fixture(scope="module")
def job_id(served: Served) -> JobId:
    return served.add_job()


def refused(answer: httpx.Response, status: int, kind: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    problem: dict[str, Any] = answer.json()
    assert set(problem) <= {"kind", "cause", "fix", "node"}
    assert problem["kind"] == kind
    assert problem["cause"]
    return problem


def test_status(served: Served) -> None:
    status = served.server.get("/status")
    assert status["version"] == __version__
    assert status["cluster"] == CLUSTER
    assert status["events_version"] == 1


def test_nodes(served: Served) -> None:
    nodes = served.server.get("/nodes")
    assert [node["name"] for node in nodes] == ["node1", "node2"]
    assert {node["view"]["address"] for node in nodes} == {one.where for one in served.agents}


def test_the_prefix_is_part_of_every_route(served: Served) -> None:
    bare = f"http://127.0.0.1:{served.server.port}/mntrain/v1/status"
    answer = httpx.get(bare, headers={"Authorization": f"token {TOKEN}"}, follow_redirects=False)
    assert answer.status_code != 200


def test_a_node_is_added_and_forgotten(served: Served) -> None:
    third = served.elsewhere.agent("node3", cluster=CLUSTER, authority=served_authority())
    try:
        answer = served.server.ask("POST", "/nodes", {"address": third.where})
        assert answer.status_code == 201, answer.text
        key = answer.json()["key"]
        assert answer.json()["name"] == "node3"
        assert key in [node["key"] for node in served.server.get("/nodes")]
    finally:
        served.do(third.die)
    gone = served.server.ask("DELETE", f"/nodes/{key}")
    assert gone.status_code == 204, gone.text
    assert key not in [node["key"] for node in served.server.get("/nodes")]
    refused(served.server.ask("DELETE", f"/nodes/{key}"), 404, "no-such-node")


def test_jobs(served: Served, job_id: JobId) -> None:
    jobs = {job["job_id"]: job for job in served.server.get("/jobs")}
    assert jobs[job_id]["state"] == "running"
    assert served.server.get(f"/jobs/{job_id}")["placements"] == jobs[job_id]["placements"]


def test_metrics(served: Served, job_id: JobId) -> None:
    def whole() -> Any:
        series = served.server.get(f"/jobs/{job_id}/metrics")
        is_read = [len(rank["step"]) for rank in series.get("ranks", [])] == [STEPS, STEPS]
        return series if is_read else None

    series = wait_for(whole)
    assert series["job"]["step"] == list(map(float, range(1, STEPS + 1)))
    newer = f"/jobs/{job_id}/metrics?stream={series['stream']}&since={series['seq'] - 1}"
    assert served.server.get(newer)["since"] == series["seq"] - 1
    assert served.server.get(newer)["seq"] == series["seq"]
    other = f"/jobs/{job_id}/metrics?stream=other&since={series['seq'] - 1}"
    assert served.server.get(other).get("since", 0) == 0
    thin = served.server.get(f"/jobs/{job_id}/metrics?points=5")
    assert [len(rank["step"]) for rank in thin["ranks"]] == [5, 5]


def test_logs(served: Served, job_id: JobId) -> None:
    log = served.server.get(f"/jobs/{job_id}/logs")
    assert len(log["lines"]) == 60
    assert not log.get("is_cut")
    short = served.server.get(f"/jobs/{job_id}/logs?rank=1&tail=3")
    assert [line["text"] for line in short["lines"]] == ["line 27", "line 28", "line 29"]
    assert {line["rank"] for line in short["lines"]} == {1}
    assert short["is_cut"]
    own = served.server.get(f"/jobs/{job_id}/logs?node=node1&search=line 7")
    assert [(line["node"], line["text"]) for line in own["lines"]] == [("node1", "line 7")]


def test_the_spec_is_a_file_to_launch_again(served: Served, job_id: JobId) -> None:
    spec = served.server.get(f"/jobs/{job_id}/spec")
    assert spec["name"] == f"{job_id}.toml"
    assert "mntrain_job" in spec["text"]
    assert FILE in spec["text"]


def test_environment_and_files_are_in_no_other_answer(served: Served, job_id: JobId) -> None:
    paths = (
        "/status",
        "/nodes",
        "/jobs",
        *(f"/jobs/{job_id}{p}" for p in ("", "/metrics", "/logs")),
    )
    for path in paths:
        text = served.server.ask("GET", path).text
        assert SECRET not in text, path
        assert FILE not in text, path


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_job_is_ended(served: Served, how: str) -> None:
    job_id = served.add_job()
    answer = served.server.ask("POST", f"/jobs/{job_id}/{how}")
    assert answer.status_code == 202, answer.text
    assert SECRET not in answer.text
    wait_for(lambda: served.server.get(f"/jobs/{job_id}")["state"] == "canceled")
    (reason,) = {agent.jobs[job_id].part.stop_reason for agent in served.agents}
    assert reason == "killed by user" or str(reason).startswith("stopped by Anonymous ")


def test_a_job_is_launched_from_a_file_and_again(served: Served) -> None:
    first = served.server.ask("POST", "/jobs", {"spec": JOB_FILE})
    assert first.status_code == 201, first.text
    assert first.json()["name"] == "from a file"
    assert first.json()["submitted_by"].startswith("Anonymous "), "a name, not a number"
    again = served.server.ask("POST", "/jobs", {"job_id": first.json()["job_id"]})
    assert again.status_code == 201, again.text
    assert again.json()["job_id"] != first.json()["job_id"]
    assert again.json()["name"] == "from a file"


def test_links_are_measured(served: Served) -> None:
    answer = served.server.ask("POST", "/links/measure", {"nodes": ["node1", "nobody"]})
    assert answer.status_code >= 400
    refused(answer, answer.status_code, answer.json()["kind"])
    answer = served.server.ask("POST", "/links/measure", {"nodes": ["node1", "node2"]})
    assert answer.status_code == 200, answer.text
    assert len(answer.json()) == 2


def test_an_invitation_lets_a_real_node_join(
    served: Served, loopback_addresses: Iterator[str], tmp_path: Path
) -> None:
    answer = served.server.ask("POST", "/invitations", {"uses": 1, "expires_in_s": 600})
    assert answer.status_code == 201, answer.text
    invited = answer.json()
    assert invited["uses"] == 1
    assert 0 < invited["expires_s"] - time.time() <= 600
    assert invited["command"].startswith("mntrain agent join mntrain-")
    address = next(loopback_addresses)
    command = [sys.executable, "-m", "jupyter_mntrain.agent", *invited["command"].split()[2:]]
    command += ["--name", "guest", "--listen", address, "--port", str(free_port(address))]
    command += ["--state-dir", str(tmp_path / "state")]
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(command, stderr=log) as process:
        try:
            wait_for(
                lambda: (
                    [
                        node["view"]["liveness"]
                        for node in served.server.get("/nodes")
                        if node["name"] == "guest"
                    ]
                    == ["up"]
                )
            )
        finally:
            process.terminate()
    (key,) = (node["key"] for node in served.server.get("/nodes") if node["name"] == "guest")
    assert served.server.ask("DELETE", f"/nodes/{key}").status_code == 204


@pytest.mark.parametrize("body", [{"uses": 0}, {"uses": 10**9}, {"expires_in_s": 0}])
def test_an_invitation_of_nobody_is_refused(served: Served, body: dict[str, int]) -> None:
    refused(served.server.ask("POST", "/invitations", body), 400, "bad-spec")


BAD_BODIES = {
    "unknown field": ("/nodes", {"address": "a:1", "adress": "b"}),
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
    problem = refused(served.server.ask("POST", "/jobs", {"spec": JOB_FILE}), 409, "refused")
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


def test_the_cluster_is_opened_by_the_first_who_asks(
    new_server: Callable[..., LiveServer], elsewhere: Elsewhere
) -> None:
    agent = elsewhere.agent("node1", cluster=CLUSTER)
    server = new_server(agent.where)
    base = server.url("").removesuffix("/mntrain/v1")
    assert httpx.get(f"{base}/api/status", headers={"Authorization": f"token {TOKEN}"}).json()
    assert server.ask("GET", "/nowhere").status_code == 404
    assert httpx.get(server.url("/status")).status_code == 403
    assert agent.requests == []
    server.get("/status")
    wait_for(lambda: agent.count("stream"))


def test_the_end_of_the_server_ends_the_watching(
    new_server: Callable[..., LiveServer], elsewhere: Elsewhere
) -> None:
    agent = elsewhere.agent("node1", cluster=CLUSTER)
    server = new_server(agent.where)
    server.get("/status")
    wait_for(lambda: agent._listeners)
    began_s = time.monotonic()
    assert server.end() == 0, server.log
    assert time.monotonic() - began_s < 10
    wait_for(lambda: not agent._listeners)
    assert "Traceback" not in server.log


def test_a_wrong_cluster_name_is_said_and_asked_again(
    new_server: Callable[..., LiveServer],
) -> None:
    server = new_server("", cluster="no name at all")
    for _ in range(2):
        refused(server.ask("GET", "/status"), 400, "bad-spec")
