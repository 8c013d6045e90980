"""Two agents on loopback addresses of this machine, for the benchmarks that need nodes."""

from __future__ import annotations

import contextlib
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from jupyter_mntrain.cluster import Cluster

ADDRESSES = ("127.0.0.21", "127.0.0.22")
PORT = 8771
READY_S = 30.0


@contextlib.contextmanager
def two_agents() -> Iterator[tuple[Cluster, list[subprocess.Popen[bytes]]]]:
    """A watching cluster with two nodes that are up, and the agents' processes."""
    name = f"bench-{secrets.token_hex(3)}"
    agents: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory() as state:
        try:
            for index, address in enumerate(ADDRESSES, start=1):
                command = [sys.executable, "-m", "jupyter_mntrain.agent", "--cluster", name]
                command += ["--name", f"node{index}", "--address", address, "--port", str(PORT)]
                command += ["--state-dir", str(Path(state) / f"node{index}")]
                quiet = subprocess.DEVNULL
                agents.append(subprocess.Popen(command, stdout=quiet, stderr=quiet))
            with Cluster(name, addresses=[f"{a}:{PORT}" for a in ADDRESSES]) as cluster:
                if len(cluster.wait_for_nodes(2, READY_S)) < 2:
                    raise SystemExit("the agents did not start")
                yield cluster, agents
        finally:
            for agent in agents:
                agent.terminate()
            for agent in agents:
                agent.wait(READY_S)


def until(condition: object, what: str, patience_s: float = 60.0) -> None:
    deadline = time.monotonic() + patience_s
    while not condition():  # type: ignore[operator]
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {patience_s:.0f} s: {what}")
        time.sleep(0.02)
