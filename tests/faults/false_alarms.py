"""False alarms: normal training on busy cores, and whatever is said about it.

``python -m tests.faults.false_alarms --minutes 60 --load 2`` runs three jobs in turn on a simulated
cluster: the trainer with saves and evaluations, an own script with a Recorder, and one without.
Other programs compute alongside them, in bursts. Prints every problem that the driver shows.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import time
from contextlib import suppress
from itertools import cycle
from pathlib import Path

from tests.e2e.conftest import joined_lab
from tests.faults.bench import OVER, SCRIPT, Bench
from tests.faults.search.case import Statement
from tests.faults.search.statements import of_job, of_node
from tests.netlab import missing

RECIPE = """
[model]
preset = "llama-tiny"
hidden_size = 128

[data]
sequence_length = 64

[pipeline]
schedule = "1f1b"
microbatches = 4

[train]
steps = 100000
batch_size = 8
log_interval = 1

[checkpoint]
interval_steps = 50

[evaluation]
interval_steps = 40
"""

UNRECORDED = """
import time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
weights = torch.zeros(200_000)
step = 0
while True:
    time.sleep(0.05)
    dist.all_reduce(weights)
    step += 1
    print("step of rank", dist.get_rank(), step, flush=True)
    if step % 200 == 0:
        torch.save(weights, f"weights-{dist.get_rank()}.pt")
"""

JOB_S = 300.0
BURST_S = (0.2, 5.0)
PAUSE_S = (0.5, 5.0)
LOOK_EVERY_S = 0.5


def compute_in_bursts(seed: int) -> None:
    """Another program on the same cores."""
    chance = random.Random(seed)
    while True:
        until_s = time.monotonic() + chance.uniform(*BURST_S)
        while time.monotonic() < until_s:
            sum(range(10_000))
        time.sleep(chance.uniform(*PAUSE_S))


def said(bench: Bench) -> set[Statement]:
    """What the driver says now."""
    nodes = [bench.node(host) for host in bench.lab.hosts]
    return {*of_job(bench.latest), *(one for node in nodes for one in of_node(node))}


def train(bench: Bench, words: list[str], seconds: float) -> int:
    """Run one job and print what is said about it; how many alarms."""
    members = ("--member", "node1:1", "--member", "node2:1", "--env", "OMP_NUM_THREADS=1")
    bench.job = bench.run("launch", *words, "--detach", *members)["job_id"]
    begun, known = time.monotonic(), set[Statement]()
    while (now_s := time.monotonic() - begun) < seconds:
        for new in said(bench) - known:
            print(f"  {now_s:5.0f} s  {new}", flush=True)
            known.add(new)
        if bench.latest.get("state") in OVER:
            break
        time.sleep(LOOK_EVERY_S)
    steps, state = bench.run("status", bench.job)["step"], bench.latest.get("state")
    print(f"{Path(words[0]).name}: {now_s:.0f} s, step {steps}, {state}", flush=True)
    bench._end()
    return len({(one.channel, one.kind, one.node, one.rank) for one in known}) + (state in OVER)


def watch(minutes: float) -> int:
    """Train for so long; how many alarms there were."""
    alarms, end = 0, time.monotonic() + minutes * 60
    mntrain = str(Path(sys.executable).with_name("mntrain"))
    with joined_lab(mntrain) as lab:
        bench = Bench(lab, mntrain)
        recipe, script = (lab.hosts[2].home / name for name in ("normal.toml", "unrecorded.py"))
        recipe.write_text(RECIPE)
        script.write_text(UNRECORDED)
        try:
            for job in cycle([[str(recipe)], [str(SCRIPT)], [str(script)]]):
                if (left_s := end - time.monotonic()) <= 0:
                    break
                alarms += train(bench, job, min(JOB_S, left_s))
        finally:
            with suppress(AssertionError):
                bench.close()
    return alarms


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--load", type=int, default=2, help="number of programs alongside the jobs")
    options = parser.parse_args()
    if (why_not := missing()) is not None:
        sys.stderr.write(f"no simulated cluster: {why_not}\n")
        return 2
    load = [
        multiprocessing.Process(target=compute_in_bursts, args=(seed,), daemon=True)
        for seed in range(options.load)
    ]
    for one in load:
        one.start()
    alarms = watch(options.minutes)
    for one in load:
        one.terminate()
    print(f"{alarms} alarms in {options.minutes:g} minutes next to {options.load} programs")
    return bool(alarms)


if __name__ == "__main__":
    sys.exit(main())
