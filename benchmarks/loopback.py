"""Two agents on loopback addresses of this machine, for the benchmarks that need nodes."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from jupyter_mntrain.cluster import Cluster
from tests.agent.live import free_range
from tests.trusted import authority, install_drivers

ADDRESSES = ("127.0.0.21", "127.0.0.22")
PORT = 8771
READY_S = 30.0
ROOT = Path(__file__).resolve().parents[1]


@contextlib.contextmanager
def own_configuration(directory: Path) -> Iterator[None]:
    """Use a separate configuration directory, so that the user's own clusters stay untouched."""
    before = os.environ.get("XDG_CONFIG_HOME")
    os.environ["XDG_CONFIG_HOME"] = str(directory / "config")
    try:
        yield
    finally:
        del os.environ["XDG_CONFIG_HOME"]
        if before is not None:
            os.environ["XDG_CONFIG_HOME"] = before


@contextlib.contextmanager
def two_agents(
    *, python: str = sys.executable
) -> Iterator[tuple[Cluster, list[subprocess.Popen[bytes]]]]:
    """A cluster with two nodes that are up, and the agents' processes.

    Args:
        python: interpreter of the ranks.
    """
    name = f"bench-{secrets.token_hex(3)}"
    agents: list[subprocess.Popen[bytes]] = []
    addresses = [f"{address}:{PORT}" for address in ADDRESSES]
    with tempfile.TemporaryDirectory() as state, own_configuration(Path(state)):
        try:
            with Cluster(name, addresses=addresses) as cluster:
                token = cluster.membership.invite(uses=len(ADDRESSES))
                for index, address in enumerate(ADDRESSES, start=1):
                    command = [sys.executable, "-m", "jupyter_mntrain.agent", "join"]
                    command += ["--name", f"node{index}", "--listen", address]
                    command += ["--port", str(PORT), "--python", python]
                    command += ["--state-dir", str(Path(state) / f"node{index}")]
                    quiet = subprocess.DEVNULL
                    agent = subprocess.Popen(
                        command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet
                    )
                    agents.append(agent)
                    assert agent.stdin is not None
                    with agent.stdin as tells:
                        tells.write(token.encode())
                until(
                    lambda: [node.liveness for node in cluster.nodes()] == ["up", "up"],
                    "two nodes to be up",
                    READY_S,
                )
                yield cluster, agents
        finally:
            for agent in agents:
                agent.terminate()
            for agent in agents:
                agent.wait(READY_S)


@contextlib.contextmanager
def replay(ranks: int, nodes: int = 8) -> Iterator[str]:
    """A replayed job of a cluster that this user drives; addresses of its agents."""
    authority()
    command = [
        sys.executable,
        "-m",
        "tests.standin.replay",
        "--nodes",
        str(nodes),
        "--ranks",
        str(ranks),
    ]
    command += ["--steps-per-s", "1", "--base-port", str(free_range("127.0.0.1", nodes))]
    with tempfile.TemporaryDirectory() as state, own_configuration(Path(state)):
        install_drivers(Path(os.environ["XDG_CONFIG_HOME"]))
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
        try:
            assert process.stdout is not None
            line = process.stdout.readline().decode().strip()
            if not line:
                raise SystemExit("the replay did not start")
            yield line.removeprefix("MNTRAIN_AGENTS=")
        finally:
            process.terminate()
            process.communicate()


def until(condition: object, what: str, patience_s: float = 60.0) -> None:
    deadline = time.monotonic() + patience_s
    while not condition():  # type: ignore[operator]
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {patience_s:.0f} s: {what}")
        time.sleep(0.02)
