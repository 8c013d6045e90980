"""An agent in a slot of an allocation, started as a scheduler starts it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from jupyter_mntrain.agent.attempt.processes import kill_all, marked
from tests.waiting import PATIENCE_S


@dataclass
class SlotAgent:
    state: Path
    process: subprocess.Popen[bytes]

    @classmethod
    def start(
        cls, state: Path, token: Path, address: str, python: str = sys.executable
    ) -> SlotAgent:
        """Args:
        python: of its jobs.
        """
        command = [sys.executable, "-m", "jupyter_mntrain.agent", "join", "--slot", str(state)]
        command += ["--token-file", str(token), "--listen", address, "--python", python]
        with (state.parent / f"{state.name}.log").open("ab") as log:
            return cls(state, subprocess.Popen(command, stdout=log, stderr=log))

    def kill(self) -> None:
        """As a power cut does, of an agent without jobs."""
        self.process.kill()
        self.process.wait()

    def kill_all(self) -> None:
        """As a power cut does."""
        self.kill()
        for attempt in self.state.glob("jobs/*/attempt-*"):
            kill_all(partial(marked, attempt))

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(PATIENCE_S)
        self.kill_all()
