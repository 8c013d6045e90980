"""The process that waits for nodes: one that is killed loses its lock."""

from __future__ import annotations

import subprocess
import sys

from jupyter_mntrain.sources.awaited_launch import forget_waiting, is_gone, waiting_for

WAITS = """
from jupyter_mntrain.sources.awaited_launch import waiting_for
with waiting_for("slurm-3f9a2c"):
    print("waits", flush=True)
    input()
"""


def test_a_process_that_is_killed_while_it_waits_is_gone_and_one_that_ends_is_not() -> None:
    assert not is_gone("slurm-3f9a2c")
    with waiting_for("slurm-3f9a2c"):
        assert not is_gone("slurm-3f9a2c")
    assert not is_gone("slurm-3f9a2c")
    is_killed()
    assert is_gone("slurm-3f9a2c")
    assert is_gone("slurm-3f9a2c")  # to look changes nothing
    with waiting_for("slurm-3f9a2c"):
        assert not is_gone("slurm-3f9a2c")  # another one took over
    is_killed()
    forget_waiting("slurm-3f9a2c")
    assert not is_gone("slurm-3f9a2c")


def is_killed() -> None:
    """A process waits, and is killed."""
    with subprocess.Popen(
        [sys.executable, "-c", WAITS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"waits\n"
        assert not is_gone("slurm-3f9a2c")
        process.kill()
