"""Killed drivers: the job keeps running."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import psutil
import pytest

from tests.e2e.conftest import start
from tests.faults.bench import Bench
from tests.faults.limits import PATIENCE_S
from tests.server.live_server import server_command
from tests.waiting import until

pytestmark = [pytest.mark.netlab, pytest.mark.slow]

KERNEL = """
import sys, time
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel()
def run(code):
    said = []
    client.execute_interactive(code, timeout=120, output_hook=lambda m: said.append(m["content"]))
    return "".join(one.get("text", "") for one in said)
run("%load_ext jupyter_mntrain")
run("%mntrain --cluster lab status")
run("%mntrain --cluster lab launch SCRIPT --member node1:1 --member node2:1")
time.sleep(600)
"""


def test_a_kernel_that_is_killed_harms_nothing(bench: Bench) -> None:
    script = Path(__file__).with_name("training.py")
    program = bench.driver.home / "kernel.py"
    program.write_text(KERNEL.replace("SCRIPT", str(script)))
    known = {one.get("job") for one in bench.seen()}
    start(bench.driver, [sys.executable, str(program)], bench.driver.home / "kernel.log")
    with bench.cleaned_up():
        _, seen = bench.first_time(0, lambda o: o.get("job") not in {None, *known}, PATIENCE_S)
        bench.job = seen["job"]
        until(lambda: bench.has_stepped(bench.first), "the first steps", 120)
        kernels = [pid for pid in bench.driver.pids() if "ipykernel_launcher" in words(pid)]
        assert kernels
        for pid in kernels:
            bench.signal(pid, signal.SIGKILL)
        goes_on(bench)


def test_a_jupyter_server_that_is_killed_harms_nothing(bench: Bench) -> None:
    log = bench.driver.home / "server.log"
    server = start(bench.driver, server_command(8899), log)
    until(lambda: "is running at" in log.read_text(), "the server")
    with bench.cleaned_up():
        bench.launch_and_step()
        pids = [pid for pid in bench.driver.pids() if "jupyter_server" in words(pid)]
        assert pids
        for pid in pids:
            bench.signal(pid, signal.SIGKILL)
        server.wait(PATIENCE_S)
        goes_on(bench)


def goes_on(bench: Bench) -> None:
    before = bench.steps(bench.second)
    until(lambda: bench.steps(bench.second) > before + 20, "the job to go on")
    assert bench.latest["state"] == "running"


def words(pid: int) -> str:
    try:
        return " ".join(psutil.Process(pid).cmdline())
    except psutil.Error:
        return ""
