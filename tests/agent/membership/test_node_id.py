"""The state directory's lock, with real processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_mntrain.agent.membership.state_directory import locked_state
from jupyter_mntrain.model.errors import MntrainError
from tests.wording import wording

HOLD = """
import sys, pathlib
from jupyter_mntrain.agent.membership.state_directory import locked_state
with locked_state(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def holder(state: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(state)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_agent_is_refused_by_pid_and_a_killed_one_leaves_the_lock(tmp_path: Path) -> None:
    with holder(tmp_path / "state") as process:
        for _ in range(2):  # being refused changes nothing about who holds it
            with (
                pytest.raises(
                    MntrainError, match=wording(rf"another agent \(pid {process.pid} on ")
                ),
                locked_state(tmp_path / "state"),
            ):
                pass
        process.kill()
        process.wait()
        with locked_state(tmp_path / "state"):
            pass
        with locked_state(tmp_path / "state"):
            pass


def test_a_state_directory_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(MntrainError, match=wording("cannot be used")),
        locked_state(tmp_path / "file" / "state"),
    ):
        pass
