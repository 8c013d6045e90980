"""Restart: seconds from the kill of a rank until training has caught up, at most 15 s.

The steps since the checkpoint, which have to be repeated, are not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path
from statistics import median

from benchmarks.loopback import two_agents, until
from jupyter_mntrain.cluster import Cluster, Job
from jupyter_mntrain.model.records.job import TERMINAL, JobSpec

LIMIT_S = 15.0
INTERVAL_STEPS = 20
KILLED_AFTER_STEPS = 50
RECIPE = f"""
[model]
preset = "llama-tiny"

[data]
sequence_length = 64

[pipeline]
microbatches = 4

[train]
steps = 100000
batch_size = 16

[checkpoint]
interval_steps = {INTERVAL_STEPS}
"""


def step_of(job: Job) -> int:
    ranks = [rank for part in job.view().parts for rank in part.ranks]
    return min((rank.step or 0 for rank in ranks), default=0)


def cost_s(cluster: Cluster) -> tuple[float, float]:
    """(seconds until the step reached before, seconds of the repeated steps among them)."""
    spec = JobSpec(
        entry=("-m", "jupyter_mntrain.train", "recipe.toml"),
        files={"recipe.toml": RECIPE},
        participants=cluster.participants(),
        environment={"OMP_NUM_THREADS": "1"},
        max_restarts=1,
    )
    job = cluster.launch(spec)
    until(lambda: step_of(job) > KILLED_AFTER_STEPS, "the steps before the kill", 120)
    begun, before = time.monotonic(), step_of(job)
    pid = job.view().parts[1].ranks[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until(lambda: job.view().attempt.number == 2 and step_of(job) > before, "its return", 120)
    took = time.monotonic() - begun
    job.watch()
    until(lambda: 0 in job.history().ranks, "the samples")
    steps = job.history().ranks[0].steps
    again = sum(step.step_s for step in steps if step.step <= before)
    job.kill()
    until(lambda: job.state in TERMINAL, "its end")
    return took, again


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with two_agents() as (cluster, _):
        costs = [cost_s(cluster) for _ in range(arguments.repeats)]
    for took, again in costs:
        print(f"caught up after {took:.2f} s, {again:.2f} s of them repeated steps")
    lost = [took - again for took, again in costs]
    print(f"lost otherwise: {median(lost):.2f} s (most {max(lost):.2f} s)")
    if arguments.json:
        arguments.json.write_text(json.dumps({"took_and_again_s": costs}))
    return int(max(lost) > LIMIT_S)


if __name__ == "__main__":
    sys.exit(main())
