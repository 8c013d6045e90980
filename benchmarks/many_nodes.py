"""Many nodes: a driver that watches 64 nodes × 8 ranks needs ≤ 200 MB and ≤ 15 % of a core.

The agents are replayed; the driver is real, in a process of its own. It follows one job, takes its
summary every second, as a page has it sent, and all its series every 10 s, as a picture does.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.loopback import replay, until
from jupyter_mntrain.cluster import Cluster, Job
from tests.standin.story import HISTORY_STEPS

LIMIT_MB, LIMIT_SHARE = 200.0, 0.15
PICTURE_EVERY = 10
SETTLE_S = 5.0


def watch(addresses: list[str], ranks: int, seconds: float) -> dict[str, float]:
    begun = time.monotonic()
    with Cluster("replay", addresses=addresses) as cluster:
        until(lambda: len(cluster.jobs()) > 0, "the replayed job")
        job = cluster.job(cluster.jobs()[0].job_id)
        until(lambda: len(job.history().writing) == ranks, "samples of all ranks", 300.0)
        until(lambda: least_steps(job) >= HISTORY_STEPS, "all steps so far", 300.0)
        ready_s = time.monotonic() - begun
        # What follows is the steady state: what was made before is taken.
        job.series()
        time.sleep(SETTLE_S)
        job.series()
        before, started = time.process_time(), time.monotonic()
        beats = 0
        while (passed := time.monotonic() - started) < seconds:
            job.summary()
            beats += 1
            if beats % PICTURE_EVERY == 0:
                job.series()
            time.sleep(max(0.0, beats - passed))
        spent = time.process_time() - before
        return {
            "ready_s": ready_s,
            "share": spent / passed,
            "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
            "steps": float(least_steps(job)),
        }


def least_steps(job: Job) -> int:
    return min(one.count for one in job.history().ranks.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--ranks-per-node", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--watch", help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    ranks = arguments.nodes * arguments.ranks_per_node
    if arguments.watch:
        print(json.dumps(watch(arguments.watch.split(), ranks, arguments.seconds)))
        return 0
    with replay(ranks, arguments.nodes) as addresses:
        command = [sys.executable, "-m", "benchmarks.many_nodes", "--watch", addresses]
        command += ["--nodes", str(arguments.nodes), "--seconds", str(arguments.seconds)]
        command += ["--ranks-per-node", str(arguments.ranks_per_node)]
        said = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    found: dict[str, float] = json.loads(said)
    print(
        f"{arguments.nodes} nodes, {ranks} ranks: all read after {found['ready_s']:.1f} s; "
        f"{found['memory_mb']:.0f} MB, {100 * found['share']:.1f} % of a core, "
        f"{found['steps']:.0f} steps"
    )
    if arguments.json:
        arguments.json.write_text(json.dumps(found) + "\n")
    return 0 if found["memory_mb"] <= LIMIT_MB and found["share"] <= LIMIT_SHARE else 1


if __name__ == "__main__":
    sys.exit(main())
