"""One failure is one problem: the same kind, place, cause and fix wherever a person or a program
reads it, from a rank's own file to the page."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from html import unescape
from typing import Any

import msgspec
import pytest

from jupyter_mntrain import Cluster
from jupyter_mntrain.metrics.page_entries import JOB_MIME
from jupyter_mntrain.model.errors import JobNotFoundError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.job import JobSpec, Participant
from jupyter_mntrain.notebook.liveview import LiveView
from jupyter_mntrain.show.bundles import text_bundle
from jupyter_mntrain.show.tables.job import status_view
from tests.agent.live import LiveAgent
from tests.cluster.conftest import wait_for
from tests.server.live_server import LiveServer

pytestmark = [pytest.mark.slow, pytest.mark.anyio]

HANDED_OVER = """
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.telemetry.problem_file import hand_over
hand_over(Problem(kind=Kind.BAD_RECIPE, cause="no data at x/", fix="name it in data.path"))
raise SystemExit(2)
"""

SCRIPTS = {
    Kind.BAD_RECIPE: HANDED_OVER,
    Kind.NO_MODULE: "import a_module_that_no_node_has",
    Kind.GPU_OUT_OF_MEMORY: "raise RuntimeError('CUDA out of memory. Tried to allocate 2.00 GiB')",
    Kind.KILLED: "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
}


class Output:
    """A notebook's output: keeps what it was shown last."""

    def __init__(self) -> None:
        self.bundle: dict[str, Any] = {}

    def display(self, obj: Any, **_: Any) -> None:
        self.bundle = obj

    def update(self, obj: Any, **_: Any) -> None:
        self.bundle = obj


def as_data(problem: Problem | dict[str, Any] | None) -> dict[str, Any]:
    """What every surface has to agree on."""
    made = msgspec.convert(msgspec.to_builtins(problem), Problem)
    return {name: getattr(made, name) for name in ("kind", "cause", "fix", "node", "rank")}


def one_line(text: str) -> str:
    return " ".join(text.split())


def mntrain(agent: LiveAgent, *words: str) -> subprocess.CompletedProcess[str]:
    """What a terminal shows."""
    command = [sys.executable, "-m", "jupyter_mntrain.cli", "--cluster", agent.cluster, *words]
    environment = os.environ | {"MNTRAIN_AGENTS": agent.where, "COLUMNS": "300"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def rest(server: LiveServer, job_id: str) -> dict[str, Any] | None:
    """The server's answer, once the job has failed there, too."""
    answer: dict[str, Any] = server.ask("GET", f"/jobs/{job_id}").json()
    return answer if answer.get("problem") else None


async def told_to_page(server: LiveServer, job_id: str) -> dict[str, Any]:
    """The job in what an open page hears, once it has failed there, too."""
    page = await server.page()
    jobs = (await page.next("snapshot"))["jobs"]
    while not (found := [one for one in jobs if one["job_id"] == job_id and one.get("problem")]):
        jobs = [(await page.next("job"))["job"]]
    await page.close()
    told: dict[str, Any] = found[0]
    return told


async def test_one_failure_or_error_has_one_cause_and_one_fix_on_every_surface(
    new_agent: Callable[..., LiveAgent],
    new_server: Callable[..., LiveServer],
) -> None:
    agent = new_agent()
    server = new_server(agent.where, cluster=agent.cluster)
    with Cluster(agent.cluster, addresses=[agent.where]) as cluster:
        wait_for(lambda: [node.liveness for node in cluster.nodes()] == ["up"])
        for kind, code in SCRIPTS.items():
            spec = JobSpec(
                name=kind,
                entry=("script.py",),
                participants=(Participant(node=agent.name),),
                files={"script.py": code},
            )
            job = cluster.launch(spec, is_checked=False)  # the doctor refuses some of them
            job.wait()
            problem = job.view().problem
            assert problem is not None
            assert (problem.kind, problem.node, problem.rank) == (kind, agent.name, 0)
            assert problem.fix

            output = Output()
            view = LiveView(job)
            view.attach(output)
            wait_for(view.frame)
            said_to_page = await told_to_page(server, job.id)
            answer = wait_for(partial(rest, server, job.id))
            as_json = json.loads(mntrain(agent, "--json", "status", job.id).stdout)
            as_saved = output.bundle[JOB_MIME]["job"]
            for told in (as_json, answer, said_to_page, as_saved):
                assert as_data(told["problem"]) == as_data(problem)

            html = text_bundle(status_view(job.summary(), job.view(), program="mntrain"))
            for text in (
                mntrain(agent, "status", job.id).stdout,
                output.bundle["text/plain"],
                unescape(re.sub(r"<[^>]*>", "", html["text/html"])),
            ):
                assert one_line(str(problem)) in one_line(text)
                assert one_line(text).count(problem.fix) == 1

        # And an error of ours, to every program.
        with pytest.raises(JobNotFoundError) as raised:
            cluster.job("j-00000000")
    problem = raised.value.problem
    done = mntrain(agent, "--json", "status", "j-00000000")
    assert (done.returncode, done.stdout) == (JobNotFoundError.exit_code, "")
    answer = server.ask("GET", "/jobs/j-00000000")
    assert answer.status_code == 404
    for told in (json.loads(done.stderr), answer.json()):
        assert (told["kind"], told["cause"]) == (problem.kind, problem.cause)
