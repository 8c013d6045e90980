"""A page, a real server, agent and job: launched, watched, read and stopped."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import tomli_w

from tests.agent.live import LiveAgent
from tests.cluster.conftest import wait_for
from tests.server.live_server import LiveServer

pytestmark = [pytest.mark.slow, pytest.mark.anyio]

SCRIPT = """
import pathlib, sys, time
from jupyter_mntrain.telemetry import Recorder

pathlib.Path(sys.argv[1], "näme.bin").write_bytes(b"0123456789" * 500_000)
with Recorder() as recorder:
    step = 0
    while True:
        step += 1
        time.sleep(0.1)
        recorder.step(tokens=100, loss=1 / step, compute_s=0.05)
        print("did step", step, flush=True)
"""


async def test_a_model_is_pushed_to_a_node_and_a_benchmark_is_canceled(
    new_agent: Callable[..., LiveAgent], new_server: Callable[..., LiveServer]
) -> None:
    agents = [new_agent(), new_agent()]
    where = " ".join(agent.where for agent in agents)
    server = new_server(where, cluster=agents[0].cluster)
    wait_for(lambda: [node["view"]["liveness"] for node in server.get("/nodes")] == ["up"] * 2)
    has, lacks = (agent.state / "files" / "models" / "llama" for agent in agents)
    has.mkdir(parents=True)
    (has / "weights").write_bytes(os.urandom(5 << 20))
    remedy = {"push": "models:llama", "source": agents[0].name, "node": agents[1].name}
    state: dict[str, Any] = {}
    while not state.get("is_over"):
        state = server.ask("POST", "/doctor/remedy", remedy).json()
    assert state.get("problem") is None, state
    assert (lacks / "weights").read_bytes() == (has / "weights").read_bytes()

    # While its job runs, a benchmark is canceled: nothing of it is left.
    assert server.ask("POST", "/bench", {}).status_code == 200
    wait_for(lambda: [job["state"] for job in server.get("/jobs")] == ["running"])
    assert server.ask("DELETE", "/bench").status_code == 200
    wait_for(lambda: not server.get("/bench").get("is_running"))
    assert server.get("/bench").get("problem") is None
    wait_for(lambda: server.get("/jobs") == [])
    assert [list((agent.state / "jobs").glob("j-*")) for agent in agents] == [[], []]


async def test_a_job_from_launch_to_stop(
    new_agent: Callable[..., LiveAgent], new_server: Callable[..., LiveServer]
) -> None:
    agent = new_agent()
    server = new_server(f"{agent.address}:{agent.port}", cluster=agent.cluster)
    wait_for(lambda: [node["view"]["liveness"] for node in server.get("/nodes")] == ["up"])
    file = {
        "mntrain_job": 1,
        "name": "from a page",
        "entry": ["script.py", "{out}"],
        "participants": [{"node": agent.name, "nproc": 2}],
        "files": {"script.py": SCRIPT},
        "environment": {"OMP_NUM_THREADS": "1"},
    }
    page = await server.page()
    await page.next("snapshot")
    launched = server.ask("POST", "/jobs", {"spec": tomli_w.dumps(file), "yes": True})
    assert launched.status_code == 201, launched.text
    job_id = launched.json()["job"]["job_id"]
    await page.watch(job_id)
    steps: list[float] = []
    while len(steps) < 10:
        series = (await page.next("series"))["series"]
        if not series.get("since"):
            steps.clear()
        steps += series.get("job", {}).get("step", ())
    assert steps == [float(step) for step in range(1, len(steps) + 1)]
    log = server.get(f"/jobs/{job_id}/logs?rank=1&search=did step 5")
    assert {line["rank"] for line in log["lines"]} == {1}
    written = server.get(f"/jobs/{job_id}/files")["nodes"][agent.name]
    assert "outputs/näme.bin" in [one["path"] for one in written["files"]]
    of = f"path=outputs/näme.bin&node={agent.name}"
    answer = server.ask("GET", f"/jobs/{job_id}/file?{of}")
    assert answer.content == b"0123456789" * 500_000
    assert "attachment" in answer.headers["Content-Disposition"]
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert server.ask("GET", f"/jobs/{job_id}/file?{of}&most=12").content == b"012345678901"
    elsewhere = server.ask("GET", f"/jobs/{job_id}/file?path=../log&node={agent.name}")
    assert (elsewhere.status_code, elsewhere.json()["kind"]) == (409, "no-file")
    assert server.ask("POST", f"/jobs/{job_id}/stop", {"grace_s": 1.0}).status_code == 202
    while (message := await page.next("job"))["job"]["state"] != "canceled":
        assert message["job"]["state"] in {"running", "stopping"}
    await page.close()
