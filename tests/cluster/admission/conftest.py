"""Agents that join, as their users start them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from jupyter_mntrain.cluster import Cluster
from jupyter_mntrain.model.failure.kinds import Kind
from tests.agent.live import free_port
from tests.waiting import PATIENCE_S, until


@dataclass
class Joining:
    """An agent that was told to join, as its user would."""

    address: str
    port: int
    state: Path
    process: subprocess.Popen[bytes]

    @property
    def where(self) -> str:
        return f"{self.address}:{self.port}"

    def log(self) -> str:
        return (self.state / "agent.log").read_text()

    def says(self, words: str) -> None:
        until(lambda: words in self.log(), f"{words!r}; it says {self.log()}")

    def end(self) -> int:
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(PATIENCE_S)


@pytest.fixture
def agent(loopback_addresses: Iterator[str], tmp_path: Path) -> Iterator[Callable[..., Joining]]:
    """``mntrain agent …`` on an address of its own, or again on the one of another.

    A token goes to standard input, never into the arguments.
    """
    started: list[Joining] = []

    def start(
        *words: str, again: Joining | None = None, name: str = "n", ahead_s: float = 0.0
    ) -> Joining:
        number = len(started)
        address = again.address if again else next(loopback_addresses)
        port = again.port if again else free_port(address)
        state = again.state if again else tmp_path / f"state{number}"
        state.mkdir(exist_ok=True)
        token = words[1] if words[0] == "join" else ""
        options = words[2:] if words[0] == "join" else words[1:]
        command = [sys.executable, "-m", "jupyter_mntrain.agent", words[0], *options]
        command += ["--state-dir", str(state)]
        if words[0] == "join" or "--wait-to-join" in words:
            command += ["--listen", address, "--port", str(port)]
        if words[0] == "join":
            command += ["--name", f"{name}{number}"]
        with (state / "agent.log").open("wb") as log:
            environment = _with_clock(state, ahead_s) if ahead_s else None
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment
            )
        assert process.stdin is not None
        with process.stdin as tells:
            tells.write(token.encode())
        started.append(Joining(address, port, state, process))
        return started[-1]

    yield start
    for one in started:
        one.end()


def _with_clock(directory: Path, ahead_s: float) -> dict[str, str]:
    """Environment of a process whose clock is ahead: only root could set the machine's."""
    patch = f"import time\nright = time.time\ntime.time = lambda: right() + {ahead_s}\n"
    (directory / "sitecustomize.py").write_text(patch)
    return {**os.environ, "PYTHONPATH": str(directory), "MNTRAIN_TRUST_LATE_WAIT_S": "60"}


def kinds(cluster: Cluster) -> list[Kind | None]:
    """Of every node's problem."""
    return [node.problem and node.problem.kind for node in cluster.nodes()]


def up(cluster: Cluster) -> list[str]:
    return [node.name for node in cluster.nodes() if node.liveness == "up"]
