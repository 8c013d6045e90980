"""Throughput of two pipeline stages on two cores against one process on one core.

    python -m benchmarks.throughput [--json FILE] [--repeats 3] [--steps 6]

Same recipe, data and seed; every process is pinned to one core with one thread. Runs alternate, so
that a machine that slows down slows both sides; the ratio is taken within each pair of neighboring
runs. The required ratio is 1.6; the schedule itself allows 2 x M / (M + 1).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

REQUIRED_RATIO = 1.6
Rates = dict[str, float]

WARMUP_STEPS = 2
"""The first steps allocate and connect: not counted."""

MICROBATCHES = 16
RECIPE = f"""
[model]
preset = "llama-8m"
[data]
sequence_length = 256
vocabulary_size = 2048
[pipeline]
schedule = "1f1b"
microbatches = {MICROBATCHES}
[train]
batch_size = 32
device = "cpu"
"""


def main() -> int:
    arguments = _arguments()
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        print("throughput: needs two cores", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        recipe = directory / "recipe.toml"
        recipe.write_text(RECIPE)
        _measure(recipe, directory / "warm", [cores[0]], 1)  # fills the data cache
        pairs = [
            (
                # The single process alternates between the cores, which may differ in speed.
                _measure(recipe, directory / f"one-{n}", [cores[n % 2]], arguments.steps),
                _measure(recipe, directory / f"two-{n}", cores[:2], arguments.steps),
            )
            for n in range(arguments.repeats)
        ]
    return _report(pairs, arguments)


def worker(recipe: str, cores: list[int], steps: int) -> None:
    """Run one rank, pinned before torch is imported so that its threads inherit the affinity."""
    os.sched_setaffinity(0, {cores[int(os.environ.get("LOCAL_RANK", "0"))]})
    from jupyter_mntrain.train.__main__ import main as train

    sys.exit(train([recipe, "--set", f"train.steps={steps + WARMUP_STEPS}"]))


def _measure(recipe: Path, metrics: Path, cores: list[int], steps: int) -> Rates:
    """Throughput and computing share, from the trainer's own samples."""
    from jupyter_mntrain.model.records.metrics import RankStep, sample_decoder

    this = ["-m", "benchmarks.throughput", "--worker", str(recipe)]
    this += ["--cores", ",".join(map(str, cores)), "--steps", str(steps)]
    launcher = [sys.executable]
    if len(cores) > 1:
        launcher += ["-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]
        launcher += [f"--nproc-per-node={len(cores)}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    environment["MNTRAIN_METRICS_DIR"] = str(metrics)
    done = subprocess.run(
        launcher + this, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"throughput: the run on cores {cores} failed:\n{done.stderr[-2000:]}")
    steps_of = {}
    for path in sorted(metrics.glob("rank-*.ndjson")):
        samples = [sample_decoder.decode(line) for line in path.read_bytes().splitlines()]
        kept = [s for s in samples if isinstance(s, RankStep) and s.step > WARMUP_STEPS]
        steps_of[path.stem] = kept
    if not steps_of["rank-0"]:
        return {}
    rates = [(s.tokens or 0) / s.step_s for s in steps_of["rank-0"]]
    shares = {
        f"compute share {rank}": statistics.median((s.compute_s or 0) / s.step_s for s in kept)
        for rank, kept in steps_of.items()
    }
    return {"tokens_per_s": statistics.median(rates), **shares}


def _report(pairs: Sequence[tuple[Rates, Rates]], arguments: argparse.Namespace) -> int:
    ratios = [two["tokens_per_s"] / one["tokens_per_s"] for one, two in pairs]
    ratio = statistics.median(ratios)
    print(f"{'pair':>4} {'one core':>12} {'two stages':>12} {'ratio':>7}   compute shares")
    for number, ((one, two), each) in enumerate(zip(pairs, ratios, strict=True), start=1):
        shares = ", ".join(f"{v:.2f}" for k, v in two.items() if k.startswith("compute"))
        print(
            f"{number:>4} {one['tokens_per_s']:>8,.0f} tok/s {two['tokens_per_s']:>6,.0f} tok/s "
            f"{each:>7.3f}   {shares}"
        )
    ideal = 2 * MICROBATCHES / (MICROBATCHES + 1)
    is_met = ratio >= REQUIRED_RATIO
    print(
        f"median ratio {ratio:.3f} (range {min(ratios):.3f} to {max(ratios):.3f}), "
        f"ideal {ideal:.3f}, required {REQUIRED_RATIO}: {'met' if is_met else 'NOT met'}"
    )
    if arguments.json:
        result = {
            "benchmark": "throughput",
            "ratio": ratio,
            "ratios": ratios,
            "required": REQUIRED_RATIO,
            "met": is_met,
            "ideal": ideal,
            "pairs": [{"one": one, "two": two} for one, two in pairs],
            "recipe": RECIPE,
            "steps": arguments.steps,
            "machine": platform.platform(),
        }
        Path(arguments.json).write_text(json.dumps(result, indent=2) + "\n")
    return 0 if is_met else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--worker", metavar="RECIPE", help=argparse.SUPPRESS)
    parser.add_argument("--cores", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    given = _arguments()
    if given.worker:
        worker(given.worker, [int(core) for core in given.cores.split(",")], given.steps)
    sys.exit(main())
