"""Stops: no process of a stopped job survives, whatever a rank or torchrun does."""

from __future__ import annotations

import signal

import psutil
import pytest

from tests.faults.bench import Bench
from tests.waiting import until

pytestmark = [pytest.mark.netlab, pytest.mark.slow]


def test_a_torchrun_that_is_frozen_harms_nothing_and_can_be_stopped(bench: Bench) -> None:
    with bench.cleaned_up():
        bench.launch_and_step()
        bench.signal(bench.torchrun(bench.second), signal.SIGSTOP)
        before = bench.steps(bench.first)
        until(lambda: bench.steps(bench.first) > before, "the job to go on")
        bench.run("stop", bench.job)
        until(lambda: bench.latest["state"] == "canceled", "the end")
        bench.nothing_is_left()


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ("ignores SIGTERM", "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"),
        (
            "left a process in a session of its own",
            "import subprocess; subprocess.Popen(['sleep', '600'], start_new_session=True, env={})",
        ),
    ],
)
def test_whatever_a_rank_does_a_stop_ends_it(bench: Bench, what: str, code: str) -> None:
    with bench.cleaned_up():
        bench.launch_and_step()
        sleepers = lambda: [p for p in bench.second.pids() if _name(p) == "sleep"]  # noqa: E731
        bench.inject(bench.second, code)
        until(lambda: not (bench.second.home / "fault.py").exists(), f"it to have done: {what}")
        before = bench.steps(bench.second)
        until(lambda: bench.steps(bench.second) > before, "the next step")
        bench.run("stop", bench.job)
        until(lambda: bench.latest["state"] == "canceled", "the end", 15)
        bench.nothing_is_left()
        assert not sleepers()


def _name(pid: int) -> str:
    try:
        return str(psutil.Process(pid).name())
    except psutil.Error:
        return ""
