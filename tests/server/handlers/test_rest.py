"""Answers of the REST routes."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from jupyter_mntrain import __version__
from jupyter_mntrain.metrics.downsampled.samples import NodeSamples, RankSamples
from jupyter_mntrain.model.failure.calls import Call, GroupCalls
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import JobId, Rank
from jupyter_mntrain.model.records.job import RankStack
from tests.agent.live import free_port
from tests.cluster.conftest import wait_for
from tests.server.conftest import (
    CLUSTER,
    FILE,
    JOB_FILE,
    SECRET,
    STEPS,
    Served,
    refused,
    served_authority,
)
from tests.server.live_server import TOKEN
from tests.standin.faults import Refuse
from tests.standin.jobs import step
from tests.standin.usage import sample_history
from tests.wording import says

# Each starts Jupyter servers of its own.
pytestmark = pytest.mark.slow


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


@pytest.mark.parametrize("address", ["127.0.0.1:22", "169.254.169.254:8765", "8.8.8.8:8765"])
def test_a_page_has_nothing_dialed_that_is_no_node(served: Served, address: str) -> None:
    refused(served.server.ask("POST", "/nodes", {"address": address}), 400, "bad-spec")


def test_the_history_of_a_node_is_its_agents(served: Served) -> None:
    (one, _) = served.agents
    one.history = sample_history(600)
    key = next(n["key"] for n in served.server.get("/nodes") if n["name"] == one.name)
    history = served.server.get(f"/nodes/{key}/history?last=86400&points=300")
    assert history["points"] == 600
    assert history["jobs"][0]["name"] == "llama-lora"
    asked = one.asked_history
    assert (int(asked["until"]) - int(asked["since"]), asked["points"]) in (
        (86_400, "300"),
        (86_401, "300"),
    )
    refused(served.server.ask("GET", "/nodes/nobody/history"), 404, "no-such-node")
    refused(served.server.ask("GET", f"/nodes/{key}/history?last=0"), 400, "bad-request")
    refused(served.server.ask("GET", f"/nodes/{key}/history?points=x"), 400, "bad-request")


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


def test_a_range_is_asked_from_the_nodes(served: Served, job_id: JobId) -> None:
    for number, agent in enumerate(served.agents):
        rest = tuple(step(number, one) for one in (7, 8, 9))
        ranks = (RankSamples(rank=Rank(number), steps=9, rest=rest),)
        served.do(agent.samples.__setitem__, job_id, NodeSamples(attempt=1, seq=9, ranks=ranks))
    zoom = served.server.get(f"/jobs/{job_id}/metrics?begin=7&end=9")
    assert (zoom["job"]["step"], len(zoom["ranks"])) == ([7.0, 8.0, 9.0], 2)
    assert zoom["summary"]["job_id"] == job_id
    served.do(served.agents[0].samples.clear)
    half = served.server.get(f"/jobs/{job_id}/metrics?begin=7&end=9&by=time&points=2")
    assert [len(one["step"]) for one in half["ranks"]] == [2]
    for bad in ("begin=9&end=8", "begin=1&by=x", "begin=-1"):
        answer = served.server.ask("GET", f"/jobs/{job_id}/metrics?{bad}")
        refused(answer, 400, "bad-request")


def test_logs_are_safe_to_show(served: Served) -> None:
    job_id = served.add_job()
    evil = "\x1b[31mred\x1b[0m \x1b]52;c;x\x07 \u202e \x9b <b>"
    agent = served.agents[0]
    served.do(agent.logs.__setitem__, job_id, f"[{agent.name} rank 0] {evil}\n".encode())
    lines = served.server.get(f"/jobs/{job_id}/logs?rank=0")["lines"]
    assert [line["text"] for line in lines] == ["red \\x1b]52;c;x\\x07 \\u202e \\x9b <b>"]


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


def test_the_whole_log_is_one_download_in_order_of_time(served: Served) -> None:
    job_id = served.add_job()
    for number, agent in enumerate(served.agents):
        line = f"[{agent.name} rank {number}] \x1b[31mline\x1b[0m %04d\n"
        log = "".join(line % step for step in range(5000))
        length = len(log) // 5000
        marks = tuple((length * (n + 1), 100.0 + n + number / 2) for n in range(5000))
        served.do(agent.logs.__setitem__, job_id, log.encode())
        served.do(agent.log_times.__setitem__, job_id, marks)
    answer = served.server.ask("GET", f"/jobs/{job_id}/log-file")
    assert answer.headers["Content-Disposition"] == f'attachment; filename="{job_id}.log"'
    lines = answer.text.splitlines()
    assert len(lines) == 10_000
    assert [line.partition("] ")[2] for line in lines[:4]] == [
        "line 0000",
        "line 0000",
        "line 0001",
        "line 0001",
    ]
    assert lines == sorted(lines)
    one = served.server.ask("GET", f"/jobs/{job_id}/log-file?rank=1").text.splitlines()
    assert len(one) == 5000


def test_a_search_finds_old_lines_and_goes_on_with_new_ones(served: Served) -> None:
    job_id = served.add_job()
    agent = served.agents[0]
    prefix = f"[{agent.name} rank 0]"
    log = f"{prefix} a needle\n" + f"{prefix} {'hay ' * 40}\n" * 80_000
    served.do(agent.logs.__setitem__, job_id, log.encode())

    def found() -> list[str]:
        log = served.server.get(f"/jobs/{job_id}/logs?search=needle")
        return [line["text"] for line in log["lines"] if line["node"] == agent.name]

    assert found() == ["a needle"]
    served.do(agent.logs.__setitem__, job_id, f"{log}{prefix} no needle\n".encode())
    before = agent.count("log")
    assert found() == ["a needle", "no needle"]
    assert agent.count("log") - before == 2


def test_stacks_say_where_each_rank_is_now(served: Served) -> None:
    job_id = served.add_job()
    for rank, agent in enumerate(served.agents):
        call = Call(seq=3, name="all_reduce" if rank else "barrier")
        told = RankStack(
            rank=Rank(rank),
            doing="waiting for others",
            site="collective" if rank else "barrier",
            where="step (train.py:9)",
            text="Thread 1\n  next to <b>\n\nThread 2\n  \x1b[31mmain",
            calls=(GroupCalls("0", "gloo", (call,)),),
        )
        served.do(agent.stacks.__setitem__, job_id, [told])
    found = served.server.ask("POST", f"/jobs/{job_id}/stacks", {}).json()
    assert found["problem"]["kind"] == "collective-mismatch"
    assert says("rank 0 on node1 is in a barrier, in step (train.py:9)", found["ranks"][0]["said"])
    assert "main" in found["ranks"][0]["text"]
    assert "\x1b" not in found["ranks"][0]["text"]
    assert "next to" in found["ranks"][0]["threads"]
    (one,) = served.server.ask("POST", f"/jobs/{job_id}/stacks", {"rank": 1}).json()["ranks"]
    assert one["rank"] == 1
    refused(served.server.ask("POST", f"/jobs/{job_id}/stacks", {"rank": 9}), 400, "bad-spec")
    served.do(served.agents[1].faults["stacks"].append, Refuse(cause="drivers only"))
    found = served.server.ask("POST", f"/jobs/{job_id}/stacks", {}).json()
    assert [one["rank"] for one in found["ranks"]] == [0]
    assert [one["cause"] for one in found["silent"]] == ["drivers only"]


def test_stacks_of_a_job_that_has_ended_say_so(served: Served) -> None:
    job_id = served.add_job(state="succeeded")
    found = served.server.ask("POST", f"/jobs/{job_id}/stacks", {}).json()
    assert says("has ended", found["nothing"])


def test_the_spec_is_a_file_to_launch_again(served: Served, job_id: JobId) -> None:
    spec = served.server.get(f"/jobs/{job_id}/spec")
    assert spec["name"] == f"{job_id}.toml"
    assert "mntrain_job" in spec["text"]
    assert FILE in spec["text"]


def test_the_settings_of_a_job_say_where_they_came_from(served: Served, job_id: JobId) -> None:
    found = served.server.get(f"/jobs/{job_id}/settings")["settings"]
    by_name = {one["name"]: one for one in found}
    assert by_name["launch.priority"] == {
        "name": "launch.priority", "value": "0", "origin": "default",
    }  # fmt: skip
    assert by_name["launch.name"]["value"]


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
    first = served.server.ask("POST", "/jobs", {"spec": JOB_FILE, "yes": True})
    assert first.status_code == 201, first.text
    job = first.json()["job"]
    assert job["name"] == "from a file"
    assert job["submitted_by"].startswith("Anonymous "), "a name, not a number"
    again = served.server.ask("POST", "/jobs", {"job_id": job["job_id"]}).json()["job"]
    assert again["job_id"] != job["job_id"]
    assert again["name"] == "from a file"


def test_what_the_doctor_says_of_a_launch_comes_with_the_job(served: Served) -> None:
    agent = served.agents[0]
    served.do(agent.faults["facts"].append, Refuse(cause="its disk hangs", kind=Kind.DISK_ERROR))
    answer = served.server.ask("POST", "/jobs", {"spec": JOB_FILE, "yes": True})
    assert answer.status_code == 201, answer.text
    (note,) = answer.json()["notes"]
    assert (note["kind"], note["node"]) == ("disk-error", agent.name)
    assert says("was not checked", note["cause"])


def test_that_versions_may_differ_is_said_of_each_launch(served: Served) -> None:
    """Not by a job file, which a page does not show."""
    file = "mixed_versions = true\n" + JOB_FILE
    silent = served.server.ask("POST", "/jobs", {"spec": file, "yes": True}).json()["job"]["job_id"]
    said = served.server.ask(
        "POST", "/jobs", {"spec": JOB_FILE, "mixed_versions": True, "yes": True}
    )
    loud = said.json()["job"]["job_id"]
    found = [served.agents[0].jobs[one].spec.mixed_versions for one in (silent, loud)]
    assert found == [False, True]
    assert "mixed_versions" not in served.server.get(f"/jobs/{loud}/spec")["text"]


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
    pasted = re.fullmatch(
        r"echo (mntrain-\w{40,}) \| mntrain agent join --service", invited["command"]
    )
    assert pasted is not None
    address = next(loopback_addresses)
    command = [sys.executable, "-m", "jupyter_mntrain.agent", "join"]
    command += ["--name", "guest", "--listen", address, "--port", str(free_port(address))]
    command += ["--state-dir", str(tmp_path / "state")]
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(command, stdin=subprocess.PIPE, stderr=log) as process,
    ):
        try:
            assert process.stdin is not None
            with process.stdin as tells:
                tells.write(pasted[1].encode())
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
