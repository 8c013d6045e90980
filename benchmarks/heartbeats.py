"""Heartbeats on a busy machine: no false alarm in ten minutes, and a frozen agent lost in 6 s.

Two agents and a driver share the machine with one busy process per core.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from benchmarks.loopback import two_agents, until
from jupyter_mntrain.cluster import Cluster

LOST_LIMIT_S = 6.0
LOOK_EVERY_S = 0.05
BURN = "while True: sum(range(100_000))"


def alarms(cluster: Cluster, minutes: float) -> list[str]:
    """Liveness changes of nodes that were up all the time."""
    told: list[str] = []
    before = {node.name: node.liveness for node in cluster.nodes()}
    end = time.monotonic() + 60 * minutes
    while time.monotonic() < end:
        for node in cluster.nodes():
            if node.liveness != before[node.name]:
                before[node.name] = node.liveness
                told.append(f"{node.name} {node.liveness}: {node.problem}")
                print(told[-1], flush=True)
        time.sleep(LOOK_EVERY_S)
    return told


def lost_after_s(cluster: Cluster, agent: subprocess.Popen[bytes], name: str) -> float:
    """Seconds from SIGSTOP until the driver reports the node as lost."""

    def is_now(liveness: str) -> bool:
        return any(node.name == name and node.liveness == liveness for node in cluster.nodes())

    begun = time.monotonic()
    agent.send_signal(signal.SIGSTOP)
    try:
        until(lambda: is_now("lost"), "it to be lost")
        return time.monotonic() - begun
    finally:
        agent.send_signal(signal.SIGCONT)
        until(lambda: is_now("up"), "it to be back")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    with two_agents() as (cluster, agents):
        until(lambda: all(node.liveness == "up" for node in cluster.nodes()), "both to be up")
        burners = [subprocess.Popen([sys.executable, "-c", BURN]) for _ in range(cores)]
        try:
            false = alarms(cluster, arguments.minutes)
            took = [lost_after_s(cluster, agents[1], "node2") for _ in range(arguments.repeats)]
        finally:
            for burner in burners:
                burner.kill()
                burner.wait()
    print(f"{len(false)} false alarms in {arguments.minutes:g} minutes")
    print(f"frozen agent lost after {median(took):.2f} s (slowest {max(took):.2f} s)")
    if arguments.json:
        result = {"false_alarms": false, "lost_after_s": took, "cores": cores}
        arguments.json.write_text(json.dumps(result))
    return int(bool(false) or max(took) > LOST_LIMIT_S)


if __name__ == "__main__":
    sys.exit(main())
