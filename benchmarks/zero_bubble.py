"""Eager zero bubble against eager 1F1B, on the same hosts.

    python -m benchmarks.zero_bubble [--repeats 3] [--steps 14] [--case NAME]... [--json FILE]

Needs root, for the simulated cluster, and two cores. Both schedules alternate; their median steps
after the links have been measured are compared. "real": two ranks that compute, a core each, over
200 Mbit/s, with 4 microbatches. "sleeping": four ranks that sleep for their share, with 8.
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
from statistics import median

from benchmarks.schedules import steps_of
from tests.netlab import DATA, Host, own_lab

WARM_UP = 5
PORT = 29600
SCHEDULES = ("eager-1f1b", "eager-zero-bubble")
MOST_OVERHEAD = 1.03
"""Computing that deferring may take, over that of eager 1F1B."""


@dataclass(frozen=True)
class Case:
    """A pipeline with a stage on each host.

    Args:
        link: as tc shapes both ends of each cable.
        sleep_s: of each third of a microbatch; ``None`` computes.
        limit: required speedup.
    """

    name: str
    ranks: int
    layers: int
    hidden: int
    length: int
    microbatches: int
    batch: int
    link: str
    limit: float
    sleep_s: float | None = None


CASES = (
    Case("real", 2, 8, 256, 256, 4, 32, "rate 200mbit burst 256kb latency 20ms", 1.05),
    Case("sleeping", 4, 4, 64, 64, 8, 8, "rate 1gbit burst 512kb latency 20ms", 1.18, 0.06),
)
RECIPE = """
[model]
preset = "llama-tiny"
layers = {layers}
hidden_size = {hidden}
intermediate_size = {intermediate}
[data]
sequence_length = {length}
vocabulary_size = 512
[pipeline]
schedule = "{schedule}"
microbatches = {microbatches}
[train]
steps = {steps}
batch_size = {batch}
[checkpoint]
interval_steps = 0
at_end = false
[output]
at_end = false
[report]
to = []
"""


@dataclass(frozen=True)
class Run:
    """Medians: seconds of a step, and those that all ranks together compute."""

    step_s: float
    compute_s: float


def run(case: Case, schedule: str, hosts: Sequence[Host], directory: Path, steps: int) -> Run:
    recipe = directory / "recipe.toml"
    shape = {"intermediate": 11 * case.hidden // 4, "schedule": schedule, "steps": steps}
    recipe.write_text(RECIPE.format(**vars(case), **shape))
    metrics = Path(tempfile.mkdtemp(dir=directory))
    program = ["-m", "jupyter_mntrain.train"]
    if case.sleep_s is not None:
        program = ["-m", "benchmarks.sleeping", str(case.sleep_s)]
    processes = []
    for rank, host in enumerate(hosts):
        pinned = ["taskset", "-c", str(rank)] if case.sleep_s is None else []
        words = [*pinned, sys.executable, "-m", "torch.distributed.run"]
        words += [f"--nnodes={case.ranks}", f"--node-rank={rank}", "--nproc-per-node=1"]
        words += [f"--master-addr={hosts[0].data_address}", f"--master-port={PORT}"]
        own = {"GLOO_SOCKET_IFNAME": DATA, "OMP_NUM_THREADS": "1", "MNTRAIN_NODE": host.name}
        own["MNTRAIN_METRICS_DIR"] = str(metrics)
        log = (directory / f"rank-{rank}.log").open("w+b")
        command = [*words, *program, str(recipe)]
        processes.append(host.popen(command, environment=own, stdout=log, stderr=subprocess.STDOUT))
    for rank, process in enumerate(processes):
        if process.wait(900) != 0:
            said = (directory / f"rank-{rank}.log").read_text()[-2000:]
            raise SystemExit(f"{case.name}, {schedule}: rank {rank} failed:\n{said}")
    ranks = [steps_of(metrics / f"rank-{rank}.ndjson")[WARM_UP:] for rank in range(case.ranks)]
    return Run(
        median(step.step_s for step in ranks[0]),
        sum(median(step.compute_s or 0.0 for step in each) for each in ranks),
    )


def measured(case: Case, directory: Path, arguments: argparse.Namespace) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {name: [] for name in SCHEDULES}
    with own_lab(case.ranks) as lab:
        lab.reshape(DATA, case.link)
        for _ in range(arguments.repeats):
            for name in SCHEDULES:
                one = run(case, name, lab.hosts, directory, arguments.steps)
                found[name].append(one)
                shown = f"{case.name:9} {name:18} {one.step_s:.3f} s"
                print(f"{shown}, computing {one.compute_s:.3f} s", flush=True)
    return found


def told(case: Case, found: dict[str, list[Run]]) -> bool:
    """Print what came out; whether it reaches its limits."""
    eager, filled = (found[name] for name in SCHEDULES)
    gain = median(one.step_s for one in eager) / median(one.step_s for one in filled)
    computing = [median(one.compute_s for one in runs) for runs in (filled, eager)]
    overhead = computing[0] / computing[1]
    print(f"{case.name}: eager zero bubble is {gain:.3f} x as fast (limit {case.limit}),")
    print(f"{case.name}: and computes {overhead:.3f} x as long (limit {MOST_OVERHEAD})")
    return gain >= case.limit and overhead <= MOST_OVERHEAD


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [case.name for case in CASES]
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=14)
    parser.add_argument("--case", action="append", choices=names, help="by default, all")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if os.geteuid() != 0 or len(os.sched_getaffinity(0)) < 2:
        print("zero_bubble: needs root, for network namespaces, and two cores", file=sys.stderr)
        return 2
    written, reached = {}, []
    with tempfile.TemporaryDirectory() as directory:
        for case in CASES:
            if case.name in (arguments.case or names):
                found = measured(case, Path(directory), arguments)
                reached.append(told(case, found))
                written[case.name] = {
                    name: [vars(one) for one in runs] for name, runs in found.items()
                }
    if arguments.json:
        arguments.json.write_text(json.dumps(written))
    return int(not all(reached))


if __name__ == "__main__":
    sys.exit(main())
