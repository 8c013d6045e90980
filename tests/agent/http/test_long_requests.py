"""Long requests: while more of them wait than an agent has threads, it answers everything else."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import msgspec
import pytest

from jupyter_mntrain.agent.access.limits import SLOW_THREADS
from jupyter_mntrain.model.api import Route, StopRequest
from jupyter_mntrain.model.records.node import Workplace
from tests import trusted
from tests.agent.live import LiveAgent, launch
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.agents, pytest.mark.slow]


def slow_python(folder: Path, number: int, released: Path) -> Path:
    """An interpreter that says nothing until it may."""
    path = folder / f"python-{number}"
    told = folder / f"asked-{number}"
    path.write_text(
        f"#!/bin/sh\n: > {told}\nuntil [ -e {released} ]; do sleep 0.05; done\nexit 1\n"
    )
    path.chmod(0o755)
    return path


def test_a_job_is_seen_and_stopped_while_long_requests_wait(
    new_agent: Callable[..., LiveAgent], tmp_path: Path
) -> None:
    agent, released = new_agent(), tmp_path / "released"
    job_id = launch([agent], "print('begun', flush=True)\nimport time\ntime.sleep(600)")
    until(lambda: "begun" in agent.get(f"/v1/jobs/{job_id}/log").text, "the job to write")
    # As many as a loop has threads of its own, where all of them waited before.
    count = max(SLOW_THREADS, (os.cpu_count() or 1) + 4)

    def ask(number: int) -> httpx.Response:
        asked = Workplace(python=str(slow_python(tmp_path, number, released)))
        return httpx.post(
            f"{agent.url}{Route.WORKPLACE}",
            verify=trusted.driver_context(),
            content=msgspec.json.encode(asked),
            timeout=4 * PATIENCE_S,
        )

    with ThreadPoolExecutor(count) as callers:
        try:
            answers = [callers.submit(ask, number) for number in range(count)]
            until(lambda: len(list(tmp_path.glob("asked-*"))) == SLOW_THREADS, "them to wait")
            assert "begun" in agent.get(f"/v1/jobs/{job_id}/log").text
            stopped = agent.send(
                "POST", Route.STOP.format(job_id=job_id), StopRequest(reason="enough")
            )
            assert stopped.status_code == 200, stopped.text
            until(lambda: agent.record(job_id).part.ended_s is not None, "the job to end")
            assert not any(answer.done() for answer in answers)
        finally:
            released.touch()
        assert {answer.result().status_code for answer in answers} == {200}
