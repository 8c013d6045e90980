"""The doctor's time: of three nodes when somebody asks, and before a launch.

    python -m benchmarks.doctor [--repeats 5] [--json FILE]

Needs root, for a simulated cluster of three nodes and a driver, which stays open, as a notebook
does. Launches with and without the doctor alternate; the job, which sleeps, is stopped at once. The
first one with it is told apart: by then no interpreter has told what it loads, and the paths
between the nodes have not been tried, which the next ones do not do again. What the nodes were
asked, and the paths where they were tried, are timed by themselves. Each time is printed once it is
taken."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

from tests.e2e.conftest import CLUSTER, invite, join
from tests.netlab import own_lab

NODES = 3
FULL_S, BEFORE_S, CACHED_S = 10.0, 2.0, 0.2

IN_DRIVER = """
import json, os, sys, time
from jupyter_mntrain.cluster import Cluster
from jupyter_mntrain.cluster.preflight.probing import Preflight
from jupyter_mntrain.model.records.job import JobSpec

parts = {"ask": [], "try_paths": []}
for name, found in parts.items():
    def timed(self, *words, real=getattr(Preflight, name), found=found, **more):
        async def run():
            begun = time.perf_counter()
            try:
                return await real(self, *words, **more)
            finally:
                found.append(time.perf_counter() - begun)
        return run()
    setattr(Preflight, name, timed)

def launched(is_checked):
    begun = time.perf_counter()
    job = cluster.launch(spec, is_checked=is_checked)
    took = time.perf_counter() - begun
    job.stop()
    job.wait()
    say("a launch" if is_checked else "a launch without the doctor", took)
    return took

def say(what, took_s):
    print(f"{what}: {took_s:.2f} s, load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)

with Cluster(sys.argv[1]) as cluster:
    names = ["node1", "node2", "node3"]
    while not all(one.liveness == "up" for one in cluster.nodes_when_ready(names)):
        time.sleep(0.1)
    spec = JobSpec(
        entry=("script.py",),
        files={"script.py": "import time; time.sleep(600)"},
        participants=cluster.participants([f"{name}:1" for name in names]),
    )
    told = {"first": launched(True), "pairs": [], "full": []}
    parts["ask"].clear()
    for number in range(int(sys.argv[2])):
        both = {way: launched(way) for way in ((True, False), (False, True))[number % 2]}
        told["pairs"].append([both[True], both[False]])
    told |= {name: list(found) for name, found in parts.items()}
    for _ in range(int(sys.argv[2])):
        told["full"].append(cluster.doctor.examine().took_s)
        say("all three nodes", told["full"][-1])
print(json.dumps(told))
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with own_lab(NODES + 1) as lab:
        told = measured(lab, arguments.repeats)
    added = [with_it - without for with_it, without in told["pairs"]]
    rows = {
        "all three nodes, full": (median(told["full"]), FULL_S),
        "added to a launch, interpreters known": (median(added), CACHED_S),
        "  meanwhile, asking the nodes": (median(told["ask"]), BEFORE_S),
        "added to the first launch": (
            told["first"] - median(without for _, without in told["pairs"]),
            BEFORE_S,
        ),
        "  meanwhile, trying the paths": (median(told["try_paths"]), BEFORE_S),
    }
    print(f"paths were tried before {len(told['try_paths'])} of {1 + len(told['pairs'])} launches")
    for what, (took_s, limit_s) in rows.items():
        print(f"{what:40} {took_s:6.2f} s (limit {limit_s:g} s)")
    if arguments.json:
        arguments.json.write_text(json.dumps(told) + "\n")
    return 0 if all(took_s <= limit_s for took_s, limit_s in rows.values()) else 1


def measured(lab: Any, repeats: int) -> dict[str, Any]:
    mntrain, driver = str(Path(sys.executable).with_name("mntrain")), lab.hosts[-1]
    token = invite(driver, mntrain, "--uses", str(NODES))
    for host in lab.hosts[:-1]:
        join(host, mntrain, token)
    words = [sys.executable, "-c", IN_DRIVER, CLUSTER, str(repeats)]
    process = driver.popen(words, stdout=subprocess.PIPE)
    said, _ = process.communicate()
    if process.returncode:
        raise SystemExit(process.returncode)
    return dict(json.loads(said.splitlines()[-1]))


if __name__ == "__main__":
    sys.exit(main())
