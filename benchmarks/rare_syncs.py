"""Replicas that sync rarely against one node, and against replicas that sync in every step.

    python -m benchmarks.rare_syncs [--repeats 3] [--steps 400] [--every 50] [--json FILE]
        [--fragments 5] [--delay 4]

Needs root, for the simulated cluster, and two cores. Two hosts, a core each, at 100 Mbit/s; one of
them alone has half the batch. All read the same text in the same order, so after as many steps both
runs of two replicas have seen the same tokens. Rare syncs are also held in fragments, of which
each is averaged behind computing. Runs alternate; throughput is that of whole rounds
of steps, each with one sync, after the first.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from benchmarks.schedules import steps_of
from tests.netlab import DATA, Host, own_lab

PORT = 29600
LINK = "rate 100mbit burst 256kb latency 20ms"
SPEEDUP = 1.8
"""Over one node, at least."""
MOST_LOSS = 1.03
"""Times the loss of replicas that sync in every step, at most."""
LAST = 20
"""Steps over which the loss at the end is averaged."""
RECIPE = """
[model]
preset = "llama-8m"
[data]
sequence_length = 256
vocabulary_size = 2048
[data_parallel]
replicas = {replicas}
sync_every = {every}
{more}
[train]
steps = {steps}
batch_size = {batch}
device = "cpu"
[checkpoint]
interval_steps = 0
at_end = false
[output]
at_end = false
[report]
to = []
"""
BATCH = 8
"""Sequences of each replica."""


@dataclass(frozen=True)
class Run:
    """What a run reached."""

    tokens_per_s: float
    loss: float


def run(
    hosts: Sequence[Host], every: int, more: str, steps: int, round_steps: int, directory: Path
) -> Run:
    """Train on these hosts.

    Args:
        every: steps between syncs; 0 sums gradients in every step.
        more: further settings of replicas, in TOML.
        round_steps: of which whole rounds are timed.
    """
    recipe = directory / "recipe.toml"
    count = len(hosts)
    recipe.write_text(
        RECIPE.format(replicas=count, every=every, more=more, steps=steps, batch=BATCH * count)
    )
    metrics = Path(tempfile.mkdtemp(dir=directory))
    processes = []
    for rank, host in enumerate(hosts):
        words = ["taskset", "-c", str(rank), sys.executable, "-m", "torch.distributed.run"]
        words += [f"--nnodes={count}", f"--node-rank={rank}", "--nproc-per-node=1"]
        words += [f"--master-addr={hosts[0].data_address}", f"--master-port={PORT}"]
        own = {"GLOO_SOCKET_IFNAME": DATA, "OMP_NUM_THREADS": "1", "MNTRAIN_NODE": host.name}
        own["MNTRAIN_METRICS_DIR"] = str(metrics)
        log = (directory / f"rank-{rank}.log").open("w+b")
        command = [*words, "-m", "jupyter_mntrain.train", str(recipe)]
        processes.append(host.popen(command, environment=own, stdout=log, stderr=subprocess.STDOUT))
    for rank, process in enumerate(processes):
        if process.wait(7200) != 0:
            said = (directory / f"rank-{rank}.log").read_text()[-2000:]
            raise SystemExit(f"rare_syncs: rank {rank} of {count} failed:\n{said}")
    told = steps_of(metrics / "rank-0.ndjson")
    whole = told[round_steps : len(told) // round_steps * round_steps]
    seconds = sum(step.step_s for step in whole)
    return Run(
        count * sum(step.tokens or 0 for step in whole) / seconds,  # of all replicas
        fmean(float(step.loss) for step in told[-LAST:] if step.loss is not None),
    )


def main() -> int:
    arguments = _arguments()
    if os.geteuid() != 0 or len(os.sched_getaffinity(0)) < 2:
        print("rare_syncs: needs root, for network namespaces, and two cores", file=sys.stderr)
        return 2
    every, steps = arguments.every, arguments.steps
    if steps < 2 * every:
        print(f"rare_syncs: --steps {steps} has no round of {every} to time", file=sys.stderr)
        return 2
    late = f"sync_fragments = {arguments.fragments}\nsync_delay = {arguments.delay}"
    found: dict[str, list[Run]] = {}
    with tempfile.TemporaryDirectory() as name, own_lab(2) as lab:
        lab.reshape(DATA, LINK)
        for _ in range(arguments.repeats):
            for kind, hosts, between, more in (
                ("one node", lab.hosts[:1], 0, ""),
                ("rare syncs", lab.hosts, every, ""),
                ("in fragments", lab.hosts, every, late),
                ("every step", lab.hosts, 0, ""),
            ):
                one = run(hosts, between, more, steps, every, Path(name))
                found.setdefault(kind, []).append(one)
                shown = f"{kind:14} {one.tokens_per_s:,.0f} tok/s"
                print(f"{shown}, loss {one.loss:.4f} at the end", flush=True)
    rate = {kind: median(one.tokens_per_s for one in runs) for kind, runs in found.items()}
    loss = {kind: median(one.loss for one in runs) for kind, runs in found.items()}
    for kind in ("in fragments", "rare syncs"):  # the limits are for the latter
        gain, cost = rate[kind] / rate["one node"], loss[kind] / loss["every step"]
        print(f"{kind} every {every} steps: {gain:.2f} x one node (limit {SPEEDUP}),")
        print(f"loss {cost:.3f} x that of sync in every step (limit {MOST_LOSS})")
    if arguments.json:
        written = {kind: [vars(one) for one in runs] for kind, runs in found.items()}
        arguments.json.write_text(json.dumps(written))
    return int(gain < SPEEDUP or cost > MOST_LOSS)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--every", type=int, default=50, help="steps between two syncs")
    parser.add_argument("--fragments", type=int, default=5, help="that meet one after another")
    parser.add_argument("--delay", type=int, default=4, help="steps until an average is taken")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
