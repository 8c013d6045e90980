"""Openings: how the job of a sequence begins, if what begins it is ended meanwhile.

A kernel is killed in the cell that launches, or a Jupyter server is killed and started again while
a page resumes. The job begins, or it does not: then it is begun once more.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from random import Random

import psutil
from nbformat import NotebookNode, writes
from nbformat.v4 import new_code_cell, new_notebook

from tests.e2e.conftest import CLUSTER, start
from tests.faults.search.case import Layout, Opening
from tests.faults.search.stage import VICTIM, Stage
from tests.netlab import HostProcess, LabError
from tests.server.live_server import BASE, TOKEN, server_command
from tests.waiting import until

STRUCK_WITHIN_S = 3.0
"""About as long as a launch takes, from a cell or a page."""

BEGUN_S = 10.0
"""For a job to be seen, if it has begun."""

PORT = 8899
SAVED_STEPS = 25
"""After these the script has saved: it can be resumed."""


def begin(stage: Stage, opening: Opening, layout: Layout, style: str, chance: Random) -> None:
    """Have a job that makes steps.

    Raises:
        AssertionError: it does not begin, or the server does not tell of it.
    """
    if opening == "a command":
        stage.launch(layout, style)
    elif opening == "a killed kernel":
        _killed_kernel(stage, layout, style, chance)
    else:
        _restarted_server(stage, layout, style, chance)
    stage.await_steps()


def _killed_kernel(stage: Stage, layout: Layout, style: str, chance: Random) -> None:
    host = stage.host("node3")
    begun, path = host.home / "begun", host.home / "launch.ipynb"
    begun.unlink(missing_ok=True)
    words = ("launch", str(VICTIM), "--detach", *layout.members, "--", "--style", style)
    cell = f"open({str(begun)!r}, 'w').close()\n%mntrain {' '.join(words)}"
    path.write_text(writes(_notebook("%load_ext jupyter_mntrain", cell)))
    runs = [sys.executable, "-m", "jupyter", "execute", str(path)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    known = stage.jobs()
    book = host.popen(runs, environment={"MNTRAIN_CLUSTER": CLUSTER}, **quiet)
    until(lambda: begun.exists() or book.poll() is not None, "the cell to begin")
    if book.poll() is not None:
        raise LabError("no kernel runs")
    time.sleep(chance.random() * STRUCK_WITHIN_S)
    for pid in host.pids():
        with suppress(psutil.Error):
            if "ipykernel_launcher" in psutil.Process(pid).cmdline():
                psutil.Process(pid).kill()
    book.wait()
    stage.adopt(layout, style, _begun(stage, known))
    if not stage.bench.job:
        stage.launch(layout, style)


def _restarted_server(stage: Stage, layout: Layout, style: str, chance: Random) -> None:
    stage.launch(layout, style)
    stage.await_steps()
    until(lambda: stage.steps() >= SAVED_STEPS, "the script to save")
    before = stage.bench.job
    stage.command("command", "stop", before)
    known = stage.jobs()
    server = _serving(stage)
    asks = _asking(f"jobs/{before}/resume", "POST")
    host = stage.host("node3")
    page = host.popen(asks, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(chance.random() * STRUCK_WITHIN_S)
    server.kill()
    server.wait()
    page.wait()
    server = _serving(stage)
    stage.adopt(layout, style, _begun(stage, known))
    if not stage.bench.job:
        answer = stage.command("command", "resume", before, "--detach")
        stage.adopt(layout, style, answer["job_id"])
    stage.await_steps()
    told = json.loads(stage.on("node3", *_asking(f"jobs/{stage.bench.job}", "GET")))
    server.kill()
    server.wait()
    assert (told["state"], told.get("hurt")) == ("running", None), told


def _begun(stage: Stage, known: frozenset[str]) -> str:
    """The job that has begun; empty if none does."""
    with suppress(AssertionError):
        until(lambda: stage.jobs() - known, "a job", BEGUN_S)
    return next(iter(stage.jobs() - known), "")


def _notebook(*cells: str) -> NotebookNode:
    spec = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    return new_notebook(cells=[new_code_cell(cell) for cell in cells], metadata=spec)


def _serving(stage: Stage) -> HostProcess:
    host = stage.host("node3")
    environment = {"MNTRAIN_CLUSTER": CLUSTER}
    server = start(host, server_command(PORT), host.home / "server.log", environment=environment)
    asks = _asking("jobs", "GET")
    answers: Callable[[], bool] = lambda: host.run(asks).returncode == 0  # noqa: E731
    until(lambda: server.poll() is not None or answers(), "a Jupyter server")
    return server


def _asking(path: str, method: str) -> list[str]:
    """A request of a page, which ends with an error unless it is taken."""
    url = f"http://127.0.0.1:{PORT}{BASE}mntrain/v1/{path}"
    body = ("--data", json.dumps({"skips_doctor": True})) if method == "POST" else ()
    header = ("--header", f"Authorization: token {TOKEN}")
    return [
        "curl",
        "--silent",
        "--fail",
        "--max-time",
        "60",
        "--request",
        method,
        *header,
        *body,
        url,
    ]
