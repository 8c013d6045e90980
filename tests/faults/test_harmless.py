"""Harmless faults: an agent, a driver or the management network is lost, and the job runs on; in
the end it can be stopped, and no process of it survives, whatever its ranks and torchruns did.

All of it happens to one job, which a notebook began.
"""

from __future__ import annotations

import signal
import sys
import time

import psutil
import pytest

from tests.e2e.conftest import start
from tests.faults.bench import OVER, SCRIPT, STARTED_S, Bench
from tests.faults.limits import LOST_WITHIN_S, PATIENCE_S
from tests.faults.table import Outcome, report
from tests.netlab import MANAGEMENT, Host
from tests.server.live_server import server_command
from tests.waiting import until

PYTHON = sys.executable
"""Of jobs: what they leave is found by who has begun it, and no server has."""

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
run("%mntrain --cluster lab launch SCRIPT --member node1:1 --member node2:1 OPTIONS")
time.sleep(600)
"""


def test_a_kernel_that_is_killed_harms_nothing(bench: Bench) -> None:
    def begin() -> None:
        program = bench.driver.home / "kernel.py"
        code = KERNEL.replace("SCRIPT", str(SCRIPT)).replace("OPTIONS", " ".join(bench.with_python))
        program.write_text(code)
        known = {one.get("job") for one in bench.seen()}
        start(bench.driver, [sys.executable, str(program)], bench.driver.home / "kernel.log")
        _, seen = bench.first_time(0, lambda o: o.get("job") not in {None, *known}, PATIENCE_S)
        bench.job = seen["job"]
        until(lambda: bench.has_stepped(bench.first), "the first steps", STARTED_S)

    with bench.left_running(begin):
        kernels = [pid for pid in bench.driver.pids() if "ipykernel_launcher" in words(pid)]
        assert kernels
        for pid in kernels:
            bench.signal(pid, signal.SIGKILL)
        bench.goes_on(20)
        assert bench.latest["state"] == "running"


def test_a_jupyter_server_that_is_killed_harms_nothing(bench: Bench) -> None:
    with bench.left_running():
        log = bench.driver.home / "server.log"
        server = start(bench.driver, server_command(8899), log)
        until(lambda: "is running at" in log.read_text(), "the server")
        pids = [pid for pid in bench.driver.pids() if "jupyter_server" in words(pid)]
        assert pids
        for pid in pids:
            bench.signal(pid, signal.SIGKILL)
        server.wait(PATIENCE_S)
        bench.goes_on(20)
        assert bench.latest["state"] == "running"


def test_a_driver_that_is_killed_harms_nothing(bench: Bench) -> None:
    with bench.left_running():
        bench.driver.run(
            ["timeout", "-s", "KILL", "4", bench.mntrain, "--cluster", "lab", "attach", bench.job]
        )
        bench.goes_on()
        assert bench.latest["state"] == "running"


def test_a_management_network_that_is_cut_harms_nothing(bench: Bench) -> None:
    with bench.left_running():
        bench.second.set_link(MANAGEMENT, is_up=False)
        try:
            bench.goes_on(20)
            until(lambda: bench.node(bench.second).get("liveness") == "up", "the other way to it")
            assert bench.latest["state"] not in OVER
        finally:
            bench.second.set_link(MANAGEMENT, is_up=True)


def test_an_agent_that_is_frozen_is_lost_in_seconds_and_found_again(bench: Bench) -> None:
    with bench.left_running():
        agent = bench.agent(bench.second)
        since_s = time.time()
        bench.signal(agent, signal.SIGSTOP)
        try:
            took_s, seen = bench.first_time(
                since_s, lambda o: o.get("name") == "node2" and o["liveness"] == "lost", PATIENCE_S
            )
            assert bench.latest["state"] not in OVER
        finally:
            bench.signal(agent, signal.SIGCONT)
        report(
            Outcome(
                "an agent gets SIGSTOP; the job keeps running",
                took_s,
                f"node2: {seen['reason']}",
                seen["reason_fix"],
                "no agent",
            ),
            LOST_WITHIN_S,
        )
        until(lambda: bench.latest["parts"].get("node2") == "running", "its part to be known")


@pytest.mark.parametrize("which", ["first", "second"])
def test_an_agent_that_is_killed_leaves_the_job_alone_and_takes_it_up_again(
    bench: Bench, which: str
) -> None:
    host: Host = getattr(bench, which)
    with bench.left_running():
        since_s = time.time()
        bench.signal(bench.agent(host), signal.SIGKILL)
        took_s, seen = bench.first_time(
            since_s, lambda o: o.get("name") == host.name and o["liveness"] == "lost", PATIENCE_S
        )
        role = "the head's agent" if which == "first" else "another node's agent"
        bench.goes_on()
        bench.restart_agent(host)
        report(
            Outcome(
                f"{role} gets SIGKILL; the job keeps running",
                took_s,
                f"{host.name}: {seen['reason']}",
                seen["reason_fix"],
                "no agent",
            ),
            LOST_WITHIN_S,
        )
        until(lambda: bench.node(host).get("liveness") == "up", "it to be back")
        until(lambda: bench.latest["parts"].get(host.name) == "running", "its part to be known")


IGNORES_SIGTERM = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
LEAVES_A_PROCESS = (
    "import subprocess; subprocess.Popen(['sleep', '600'], start_new_session=True, env={})"
)


def test_whatever_ranks_and_torchruns_do_a_stop_ends_them(bench: Bench) -> None:
    """A rank of one node ignores SIGTERM; the other node has a frozen torchrun, and a process in
    a session and an environment of its own. Their agents were killed and restarted before.
    """
    with bench.left_running():
        for host, code in ((bench.first, IGNORES_SIGTERM), (bench.second, LEAVES_A_PROCESS)):
            bench.inject(host, code)
            until(lambda h=host: not (h.home / "fault.py").exists(), f"it to be done: {code}")
        assert sleepers(bench)
        bench.signal(bench.torchrun(bench.second), signal.SIGSTOP)
        before = bench.steps(bench.first)  # a frozen one passes on nothing of its rank
        until(lambda: bench.steps(bench.first) > before, "the job to go on")
        bench.run("stop", bench.job)
        until(lambda: bench.latest["state"] == "canceled", "the end", PATIENCE_S)
        bench.nothing_is_left()
        assert not sleepers(bench)


def sleepers(bench: Bench) -> list[int]:
    return [pid for pid in bench.second.pids() if words(pid).startswith("sleep")]


def words(pid: int) -> str:
    try:
        return " ".join(psutil.Process(pid).cmdline())
    except psutil.Error:
        return ""
