"""Eager 1F1B against 1F1B on a real link: two simulated hosts, 1 Gbit/s, real training.

Needs root, for the simulated cluster. Both schedules alternate on the same two cores; their median
steps after the links have been measured are compared. The ideal is the step time with infinitely
fast links: the slower stage's compute time and the bubble.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import msgspec

from jupyter_mntrain.model.records.metrics import RankStep
from tests.netlab import DATA, Host, own_lab

STEPS, WARM_UP = 14, 5
REQUIRED = 0.92
"""Share of the ideal step time."""
PORT = 29600
RECIPE = """
[model]
preset = "llama-tiny"
layers = 2
hidden_size = 256
intermediate_size = 512
[data]
sequence_length = 256
vocabulary_size = 512
[pipeline]
schedule = "{schedule}"
microbatches = 8
[train]
steps = {steps}
batch_size = {batch}
"""
SCHEDULES = ("1f1b", "eager-1f1b")


def run(hosts: list[Host], schedule: str, batch: int, directory: Path) -> tuple[float, float]:
    """(median seconds of a step, ideal seconds)."""
    recipe = directory / "recipe.toml"
    recipe.write_text(RECIPE.format(schedule=schedule, steps=STEPS, batch=batch))
    metrics = Path(tempfile.mkdtemp(dir=directory))
    processes = []
    for rank, host in enumerate(hosts):
        words = ["taskset", "-c", str(rank), sys.executable, "-m", "torch.distributed.run"]
        words += ["--nnodes=2", f"--node-rank={rank}", "--nproc-per-node=1"]
        words += [f"--master-addr={hosts[0].data_address}", f"--master-port={PORT}"]
        words += ["-m", "jupyter_mntrain.train", str(recipe)]
        own = {"GLOO_SOCKET_IFNAME": DATA, "OMP_NUM_THREADS": "1", "MNTRAIN_NODE": host.name}
        own |= {"MNTRAIN_METRICS_DIR": str(metrics)}
        quiet = subprocess.DEVNULL
        processes.append(host.popen(words, environment=own, stdout=quiet, stderr=quiet))
    for process in processes:
        if process.wait(600) != 0:
            raise SystemExit(f"{schedule}: a rank failed")
    ranks = [steps_of(metrics / f"rank-{rank}.ndjson")[WARM_UP:] for rank in (0, 1)]
    took = median(step.step_s for step in ranks[0])
    slowest = max(median(step.compute_s or 0.0 for step in steps) for steps in ranks)
    others = min(median(step.compute_s or 0.0 for step in steps) for steps in ranks)
    rest = median(step.optimizer_s or 0.0 for step in ranks[0])
    return took, slowest + others / 8 + rest


def steps_of(path: Path) -> list[RankStep]:
    lines = path.read_bytes().splitlines()
    return [msgspec.json.decode(line, type=RankStep) for line in lines if b'"step"' in line[:20]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--batch", type=int, default=32, help="sequences per step")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in SCHEDULES}
    with tempfile.TemporaryDirectory() as directory, own_lab(2) as lab:
        for _ in range(arguments.repeats):
            for name in SCHEDULES:
                found[name].append(run(lab.hosts, name, arguments.batch, Path(directory)))
                took, ideal = found[name][-1]
                print(
                    f"{name:12} {took:.3f} s, ideal {ideal:.3f} s: {ideal / took:.3f}", flush=True
                )
    eager = median(ideal / took for took, ideal in found["eager-1f1b"])
    print(f"eager 1F1B has {eager:.3f} of the ideal (limit {REQUIRED})")
    times = {name: median(took for took, _ in runs) for name, runs in found.items()}
    ratio = times["1f1b"] / times["eager-1f1b"]
    print(f"eager 1F1B is {ratio:.3f} x as fast as 1F1B")
    if arguments.json:
        arguments.json.write_text(json.dumps(found))
    return int(eager < REQUIRED)


if __name__ == "__main__":
    sys.exit(main())
