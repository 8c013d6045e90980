"""Processes: what the kernel says of them."""

from __future__ import annotations

import os
import subprocess
import sys

from jupyter_mntrain.agent.attempt.processes import start_time, unreaped_exit_code
from tests.waiting import until


def test_the_exit_code_of_a_process_that_nobody_has_reaped() -> None:
    with subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"]) as process:
        until(lambda: start_time(process.pid) is None, "its end")
        assert unreaped_exit_code(process.pid) == 7
        process.wait()
        assert unreaped_exit_code(process.pid) is None
    assert unreaped_exit_code(os.getpid()) is None
