"""Short jobs: 300 on two agents leave no process, open file or thread, and little memory.

Two real agents and real launches. The ranks' torchrun is forked from a process that has imported
torch (``tests/agent/forking``): only that makes so many of them cheap; nothing of the agents is
another. Then both agents start again, with all of these jobs on their disks.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from benchmarks.loopback import two_agents, until
from jupyter_mntrain.cluster import Cluster
from jupyter_mntrain.model.records.job import TERMINAL, JobSpec, Participant
from tests.agent.forking.python import forking_python

SETTLED_S = 3.0
"""After the last job, before it is looked at what is left of it: agents let go at their
heartbeats."""
MOST_KB = 20.0
"""Memory that an ended job may cost an agent: its record, packed."""
WARM_UP = 20
"""Jobs before the first look: what an agent loads on first use is no growth."""


class Held(NamedTuple):
    """What the agents hold, together."""

    files: int
    children: int
    threads: int
    memory_mb: float


def held(agents: Sequence[psutil.Process]) -> Held:
    return Held(
        files=sum(one.num_fds() for one in agents),
        children=sum(len(one.children()) for one in agents),
        threads=sum(one.num_threads() for one in agents),
        memory_mb=sum(one.memory_info().rss for one in agents) / 1e6,
    )


def launch(cluster: Cluster, jobs: int, at_once: int) -> None:
    spec = JobSpec(
        entry=("script.py",),
        files={"script.py": "print('a short job')\n"},
        participants=(Participant(node="node1", nproc=1), Participant(node="node2", nproc=1)),
    )
    for begun in range(0, jobs, at_once):
        running = [cluster.launch(spec) for _ in range(min(at_once, jobs - begun))]
        until(
            lambda running=running: all(job.state in TERMINAL for job in running),  # type: ignore[misc]
            "the jobs to end",
            300.0,
        )
        ends = [job.state for job in running]
        if ends != ["succeeded"] * len(ends):
            raise SystemExit(f"a job did not succeed: {ends}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    looks = []
    with two_agents(python=forking_python()) as (cluster, started):
        agents = [psutil.Process(one.pid) for one in started]
        launch(cluster, WARM_UP, arguments.at_once)
        for jobs in (0, arguments.jobs // 2, arguments.jobs - arguments.jobs // 2):
            begun = time.monotonic()
            launch(cluster, jobs, arguments.at_once)
            took_s = time.monotonic() - begun
            time.sleep(SETTLED_S)
            looks.append(held(agents))
            print(f"{jobs} jobs in {took_s:.0f} s: both agents hold {looks[-1]}", flush=True)
    # Pools of threads grow up to their size: the second half says whether anything goes on growing.
    first, middle, last = looks
    grown_kb = 1000 * (last.memory_mb - first.memory_mb) / len(agents) / arguments.jobs
    print(
        f"{arguments.jobs} jobs: {last.files - first.files:+d} open files, {last.children} "
        f"children, {last.threads - first.threads:+d} threads ({last.threads - middle.threads:+d} "
        f"in the second half), {grown_kb:.1f} kB of memory for each on each agent"
    )
    if arguments.json:
        arguments.json.write_text(json.dumps([one._asdict() for one in looks]) + "\n")
    is_closed = last.children == 0 and last.files <= first.files
    is_good = is_closed and last.threads <= middle.threads and grown_kb <= MOST_KB
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
