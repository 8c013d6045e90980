"""Joining: from the start of `mntrain agent join` to "has joined", ≤ 2 s.

One watching cluster, as in a notebook; each repeat is a new node with a new token. Also prints the
time to import the agent, which is part of every command.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.loopback import own_configuration, until
from jupyter_mntrain.cluster import Cluster
from tests.agent.live import free_port

LIMIT_S = 2.0
ADDRESS = "127.0.0.23"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, own_configuration(Path(folder)):
        with Cluster("bench-join") as cluster:
            joins = [join(cluster, Path(folder), number) for number in range(arguments.repeats)]
        bare = [importing() for _ in range(arguments.repeats)]
    result = {"join_s": statistics.median(joins), "slowest_s": max(joins)}
    result["import_s"] = statistics.median(bare)
    for name, value in result.items():
        print(f"{name:10} {value:.2f} s")
    if arguments.json:
        arguments.json.write_text(json.dumps(result) + "\n")
    return 0 if result["join_s"] <= LIMIT_S else 1


def join(cluster: Cluster, folder: Path, number: int) -> float:
    token = cluster.membership.invite()
    state, log = folder / f"node{number}", folder / f"node{number}.log"
    command = [sys.executable, "-m", "jupyter_mntrain.agent", "join", "--no-run"]
    command += ["--listen", ADDRESS, "--port", str(free_port(ADDRESS)), "--state-dir", str(state)]
    with log.open("wb") as out:
        begun = time.perf_counter()
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=out)
        assert process.stdin is not None
        with process.stdin as tells:
            tells.write(token.encode())
        until(lambda: "has joined" in log.read_text(), "the node to have joined")
        took = time.perf_counter() - begun
        process.wait()
    return took


def importing() -> float:
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import jupyter_mntrain.agent.main"], check=True)
    return time.perf_counter() - begun


if __name__ == "__main__":
    sys.exit(main())
