"""REST: the list of all jobs, their names, notes and deletion."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import tomli_w

from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.lifecycle.listing import RECENT
from jupyter_mntrain.model.records.evidence import Evidence, NetworkState
from jupyter_mntrain.model.records.job import JobRecord, Origin
from tests.agent.live import LiveAgent
from tests.cluster.conftest import wait_for
from tests.server.conftest import JOB_FILE, Served, refused
from tests.server.live_server import LiveServer
from tests.standin.jobs import record

# Each starts Jupyter servers of its own.
pytestmark = pytest.mark.slow

MANY = 3 * RECENT
FIRST = JobId("j-000000aa")


def old_job(node_rank: int, number: int) -> JobRecord:
    """A job that ended long before the server was started; the second goes on from the first."""
    origin = Origin(job=FIRST, run=FIRST) if number == 1 else None
    spec = {"name": f"old {number:03}", "origin": origin}
    job_id = FIRST if number == 0 else JobId(f"j-{number:08}")
    made = record(
        node_rank, "failed", job_id=job_id, submitted_s=100.0 + number, spec=spec, ended_s=500.0
    )
    ranks = tuple(msgspec.structs.replace(rank, step=number + 1) for rank in made.part.ranks)
    part = msgspec.structs.replace(
        made.part,
        ranks=ranks,
        evidence=Evidence(1.0, NetworkState("eth1", is_there=True, is_up=True)),
    )
    return msgspec.structs.replace(made, part=part, submitted_by="ripley")


@pytest.fixture
def old_jobs(served: Served) -> Iterator[list[str]]:
    made = [[old_job(rank, number) for number in range(MANY)] for rank in range(2)]
    for agent, records in zip(served.agents, made, strict=True):
        served.do(agent.jobs.update, {one.job_id: one for one in records})
    yield [one.job_id for one in made[0]]
    for agent, records in zip(served.agents, made, strict=True):
        for one in records:
            served.do(agent.jobs.pop, one.job_id)


def test_all_jobs_are_listed_however_old_without_evidence(
    served: Served, old_jobs: list[str]
) -> None:
    listed = {job["job_id"]: job for job in served.server.get("/jobs?all=1")}
    assert set(old_jobs) <= set(listed)
    one = listed[old_jobs[7]]
    assert (one["name"], one["numbers"]["step"], one["state"]) == ("old 007", 8, "failed")
    assert one["submitted_by"] == "ripley"
    assert [part.get("evidence") for part in one["parts"]] == [None, None]
    assert (listed[FIRST].get("run"), listed[old_jobs[1]]["run"]) == (None, FIRST)
    names = [job["name"] for job in served.server.get("/jobs?all=1&sort=name&search=RIPLEY")]
    assert names == sorted(names)
    assert len(names) == MANY
    refused(served.server.ask("GET", "/jobs?sort=weight"), 400, "bad-request")
    refused(served.server.ask("GET", f"/jobs?search={'x' * 300}"), 400, "bad-spec")


def test_an_old_job_is_told_to_pages_once_it_is_asked_for(
    served: Served, old_jobs: list[str]
) -> None:
    known = {job["job_id"] for job in served.server.get("/jobs")}
    assert old_jobs[3] not in known
    assert served.server.get(f"/jobs/{old_jobs[3]}")["name"] == "old 003"
    assert old_jobs[3] in {job["job_id"] for job in served.server.get("/jobs")}


def test_an_ended_job_is_named_noted_and_deleted(
    new_agent: Callable[..., LiveAgent], new_server: Callable[..., LiveServer], tmp_path: Path
) -> None:
    agent = new_agent()
    server = new_server(f"{agent.address}:{agent.port}", cluster=agent.cluster)
    wait_for(lambda: [node["view"]["liveness"] for node in server.get("/nodes")] == ["up"])
    file: dict[str, Any] = {
        "mntrain_job": 1,
        "entry": ["script.py"],
        "participants": [{"node": agent.name}],
        "files": {"script.py": "print(1)"},
        "python": sys.executable,
        "workdir": str(tmp_path),
        "queue_limit_s": 3600.0,
    }
    launched = server.ask(
        "POST", "/jobs", {"spec": tomli_w.dumps(file), "is_queued": True, "yes": True}
    )
    assert launched.status_code == 201, launched.text
    path = f"/jobs/{launched.json()['job']['job_id']}"
    kept = tomllib.loads(server.get(f"{path}/spec")["text"])
    assert {name: kept.get(name) for name in file} == file | {"participants": kept["participants"]}
    wait_for(lambda: server.get(path)["state"] == "succeeded")

    named = server.ask("PUT", f"{path}/label", {"name": "hot", "note": "r 16"})
    assert (named.status_code, named.json()["name"], named.json()["note"]) == (202, "hot", "r 16")
    noted = server.ask("PUT", f"{path}/label", {"note": ""}).json()
    assert (noted["name"], noted.get("note", "")) == ("hot", "")
    refused(server.ask("PUT", f"{path}/label", {"name": "x" * 10_000}), 400, "bad-spec")

    plan = server.get(f"{path}/removal")
    assert [one["node"] for one in plan["nodes"]] == [agent.name]
    assert plan["nodes"][0]["size_bytes"] > 0
    assert server.get(path)["name"] == "hot", "saying what would go deletes nothing"
    gone = server.ask("DELETE", f"{path}/removal?checkpoints=0")
    assert gone.status_code == 200, gone.text
    wait_for(lambda: server.get("/jobs?all=1") == [])
    refused(server.ask("DELETE", f"{path}/removal"), 404, "no-such-job")


def test_jobs_are_compared_by_their_settings(served: Served) -> None:
    def launched(name: str, priority: int) -> str:
        spec = JOB_FILE.replace('"from a file"', f'"{name}"\npriority = {priority}')
        return str(
            served.server.ask("POST", "/jobs", {"spec": spec, "yes": True}).json()["job"]["job_id"]
        )

    both = [launched("one", 3), launched("two", 4)]
    found = served.server.get(f"/compare?job={both[0]}&job={both[1]}")
    assert found["differing"] == [
        {
            "name": "launch.priority",
            "values": [
                {"name": "launch.priority", "value": value, "origin": "option"}
                for value in ("3", "4")
            ],
        }
    ]
    assert "launch.restarts" in found["same"]
    refused(served.server.ask("GET", f"/compare?job={both[0]}"), 400, "bad-request")
    unknown = served.server.ask("GET", f"/compare?job={both[0]}&job=j-ffffffff")
    refused(unknown, 404, "no-such-job")


def test_jobs_that_no_page_has_watched_are_ranked_by_all_that_they_made(served: Served) -> None:
    both = [served.add_job(state="succeeded") for _ in range(2)]
    ranking = served.server.get(f"/compare?job={both[0]}&job={both[1]}")["ranking"]
    assert "refused" not in ranking
    assert {one["job_id"] for one in ranking["jobs"]} == set(both)
