"""Harmless faults: an agent, a driver or the management network is lost, and the job runs on."""

from __future__ import annotations

import signal
import time

import pytest

from tests.faults.bench import OVER, Bench
from tests.faults.limits import LOST_WITHIN_S, PATIENCE_S
from tests.faults.table import Outcome, report
from tests.netlab import MANAGEMENT, Host
from tests.waiting import until

pytestmark = [pytest.mark.netlab, pytest.mark.slow]


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


def test_a_driver_that_is_killed_harms_nothing(bench: Bench) -> None:
    with bench.left_running():
        bench.driver.run(
            ["timeout", "-s", "KILL", "4", bench.mntrain, "--cluster", "lab", "attach", bench.job]
        )
        before = bench.steps(bench.second)
        until(lambda: bench.steps(bench.second) > before, "the job to go on")
        assert bench.latest["state"] == "running"


def test_a_management_network_that_is_cut_harms_nothing(bench: Bench) -> None:
    with bench.left_running():
        bench.second.set_link(MANAGEMENT, is_up=False)
        try:
            before = bench.steps(bench.first)
            until(lambda: bench.steps(bench.first) > before + 20, "the job to go on")
            until(lambda: bench.node(bench.second).get("liveness") == "up", "the other way to it")
            assert bench.latest["state"] not in OVER
        finally:
            bench.second.set_link(MANAGEMENT, is_up=True)


@pytest.mark.parametrize("which", ["first", "second"])
def test_an_agent_that_is_killed_leaves_the_job_alone_and_takes_it_up_again(
    bench: Bench, which: str
) -> None:
    host: Host = getattr(bench, which)
    with bench.cleaned_up():
        bench.launch_and_step()
        since_s = time.time()
        bench.signal(bench.agent(host), signal.SIGKILL)
        took_s, seen = bench.first_time(
            since_s, lambda o: o.get("name") == host.name and o["liveness"] == "lost", PATIENCE_S
        )
        role = "the head's agent" if which == "first" else "another node's agent"
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
        before = bench.steps(host)
        until(lambda: bench.steps(host) > before, "the job to go on without it")
        bench.restart_agent(host)
        until(lambda: bench.node(host).get("liveness") == "up", "it to be back")
        until(lambda: bench.latest["parts"].get(host.name) == "running", "its part to be known")
        bench.run("stop", bench.job)
        until(lambda: bench.latest["state"] == "canceled", "the end")
        bench.nothing_is_left()
