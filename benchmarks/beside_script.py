"""Built-in trainer against a hand-written script, on the same two hosts.

    python -m benchmarks.beside_script [--repeats 3] [--steps 14] [--case NAME]... [--json FILE]

Needs root, for the simulated cluster, and two cores, one per rank. Both sides alternate; their
median steps after the links have been measured are compared. Both ends of every cable are shaped.
"auto" is a recipe without a pipeline: the plan chooses by links and CPUs as the product measures
them, and stands next to choices by hand of the same run, too.
The shortest useful run: --repeats 1 --steps 8 --case "S2, 200 Mbit/s".
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

from benchmarks.configuration import planned
from benchmarks.schedules import steps_of
from benchmarks.simulated_job import Probes, cpu_speed
from jupyter_mntrain.recipe.parse import parse_recipe
from tests.netlab import DATA, Host, Lab, own_lab

WARM_UP = 5
LENGTH, BATCH, VOCABULARY = 256, 32, 512
PORT = 29600


@dataclass(frozen=True)
class Case:
    """A model, a link in Mbit/s (``None``: loopback), and the required speedup."""

    name: str
    layers: int
    hidden: int
    intermediate: int
    heads: int
    mbit: int | None
    limit: float


Times = dict[str, list[float]]
"""Seconds of a step of "script", "auto" and each choice by hand, by repeat."""

BY_HAND = {
    "eager-1f1b, 8": 'schedule = "eager-1f1b"\nmicrobatches = 8\nsplit = "even"',
    "eager-1f1b, 16": 'schedule = "eager-1f1b"\nmicrobatches = 16\nsplit = "even"',
    "eager-zero-bubble, 8": 'schedule = "eager-zero-bubble"\nmicrobatches = 8\nsplit = "even"',
}
"""Choices that a user might make."""

OF_BEST_BY_HAND = 0.98
"""Required speed of "auto", as a share of the best choice by hand: medians of a few runs vary by
that much."""

S1, S2 = (8, 256, 704, 8), (2, 768, 2048, 12)
CASES = (
    Case("S1, loopback", *S1, None, 0.99),
    Case("S1, 1 Gbit/s", *S1, 1000, 0.99),
    Case("S1, 200 Mbit/s", *S1, 200, 1.15),
    Case("S2, loopback", *S2, None, 0.99),
    Case("S2, 200 Mbit/s", *S2, 200, 1.30),
)
RECIPE = """
[model]
preset = "llama-tiny"
layers = {layers}
hidden_size = {hidden}
intermediate_size = {intermediate}
heads = {heads}
key_value_heads = {heads}
[data]
sequence_length = {length}
vocabulary_size = {vocabulary}
[pipeline]
{pipeline}
[train]
steps = {steps}
batch_size = {batch}
[report]
to = []
"""


def ours(
    case: Case, hosts: Sequence[Host], directory: Path, steps: int, pipeline: str = ""
) -> float:
    recipe = directory / "recipe.toml"
    shape = {"length": LENGTH, "vocabulary": VOCABULARY, "steps": steps, "batch": BATCH}
    recipe.write_text(RECIPE.format(**vars(case), **shape, pipeline=pipeline))
    metrics = Path(tempfile.mkdtemp(dir=directory))
    words = ["-m", "jupyter_mntrain.train", str(recipe)]
    together(case, hosts, words, directory, {"MNTRAIN_METRICS_DIR": str(metrics)})
    return median(step.step_s for step in steps_of(metrics / "rank-0.ndjson")[WARM_UP:])


def planned_pipeline(case: Case, hosts: Sequence[Host], given: str = "") -> str:
    """What a plan chooses for a recipe with only this in its pipeline, and what it has."""
    shape = {"length": LENGTH, "vocabulary": VOCABULARY, "steps": 1, "batch": BATCH}
    recipe = parse_recipe(RECIPE.format(**vars(case), **shape, pipeline=given))
    with Probes(hosts, is_loopback=case.mbit is None) as probes:
        links = probes.measure(len(hosts))
    tokens = LENGTH * BATCH // 8
    speeds = [cpu_speed(host, None, rank, case.hidden, tokens) for rank, host in enumerate(hosts)]
    chosen = planned(recipe, speeds, links).chosen.items()
    lines = [(*name.split("."), value) for name, value in chosen]
    words = [f"{key} = {quoted(value)}" for section, key, value in lines if section == "pipeline"]
    return "\n".join([*filter(None, [given]), *words])


def quoted(value: str) -> str:
    return value if value[0] in "[0123456789" else f'"{value}"'


def theirs(case: Case, hosts: Sequence[Host], directory: Path, steps: int) -> float:
    words = ["-m", "benchmarks.plain_script", "--layers", str(case.layers)]
    words += ["--hidden", str(case.hidden), "--intermediate", str(case.intermediate)]
    words += ["--heads", str(case.heads), "--vocabulary", str(VOCABULARY)]
    words += ["--length", str(LENGTH), "--batch", str(BATCH), "--steps", str(steps)]
    out = together(case, hosts, words, directory, {})
    return median(json.loads(line) for line in out.splitlines()[WARM_UP:])


def together(
    case: Case, hosts: Sequence[Host], words: list[str], directory: Path, own: dict[str, str]
) -> str:
    """Run both ranks to completion; the output of rank 0."""
    processes = []
    for rank, host in enumerate(hosts):
        here = hosts[0] if case.mbit is None else host
        interface = "lo" if case.mbit is None else DATA
        address = "127.0.0.1" if case.mbit is None else hosts[0].data_address
        command = ["taskset", "-c", str(rank), sys.executable, "-m", "torch.distributed.run"]
        command += ["--nnodes=2", f"--node-rank={rank}", "--nproc-per-node=1"]
        command += [f"--master-addr={address}", f"--master-port={PORT}", *words]
        environment = {"GLOO_SOCKET_IFNAME": interface, "OMP_NUM_THREADS": "1"} | own
        # The trainer sees two nodes also on loopback, so it measures that link, too.
        environment["MNTRAIN_NODE"] = host.name
        log = (directory / f"rank-{rank}.log").open("w+b")
        processes.append(
            (
                here.popen(command, environment=environment, stdout=log, stderr=subprocess.STDOUT),
                log,
            )
        )
    for process, log in processes:
        if process.wait(900) != 0:
            log.seek(0)
            raise SystemExit(f"{case.name}: a rank failed:\n{log.read().decode()[-2000:]}")
    log = processes[0][1]
    log.seek(0)
    lines = log.read().decode().splitlines()
    return "\n".join(line for line in lines if line.replace(".", "", 1).replace("e-", "").isdigit())


def measured(case: Case, lab: Lab, directory: Path, arguments: argparse.Namespace) -> Times:
    if case.mbit is not None:
        lab.reshape(DATA, f"rate {case.mbit}mbit burst 256kb latency 20ms")
    auto = planned_pipeline(case, lab.hosts)
    print(f"{case.name}: auto is {', '.join(auto.splitlines())}", flush=True)
    times: Times = {name: [] for name in ("script", "auto", *BY_HAND)}
    for _ in range(arguments.repeats):
        times["script"].append(theirs(case, lab.hosts, directory, arguments.steps))
        for name, pipeline in {"auto": auto, **BY_HAND}.items():
            times[name].append(ours(case, lab.hosts, directory, arguments.steps, pipeline))
    return times


def main() -> int:
    first_line = (__doc__ or "").splitlines()[0]
    arguments = case_arguments(first_line, [case.name for case in CASES], steps=14)
    if arguments is None:
        return 2
    found: dict[str, Times] = {}
    missed = 0
    with tempfile.TemporaryDirectory() as directory, own_lab(2) as lab:
        for case in CASES:
            if arguments.case and case.name not in arguments.case:
                continue
            found[case.name] = times = measured(case, lab, Path(directory), arguments)
            took = {name: median(seconds) for name, seconds in times.items()}
            best = min(BY_HAND, key=took.__getitem__)
            ratio, of_best = (took[name] / took["auto"] for name in ("script", best))
            is_met = ratio >= case.limit and of_best >= OF_BEST_BY_HAND
            missed += not is_met
            print(
                f"{case.name:15} script {took['script']:.3f} s, auto {took['auto']:.3f} s: "
                f"{ratio:.3f} x (limit {case.limit}); {of_best:.3f} x the best by hand, {best} "
                f"(limit {OF_BEST_BY_HAND}){'' if is_met else ', NOT met'}",
                flush=True,
            )
    if arguments.json:
        arguments.json.write_text(json.dumps(found))
    return int(missed > 0)


def case_arguments(
    description: str | None, names: Sequence[str], *, steps: int
) -> argparse.Namespace | None:
    """Read a benchmark's arguments; ``None``, said on stderr, if the lab cannot run here.

    Args:
        names: of its cases.
        steps: of a run, by default.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=3, help="runs of each side, alternating")
    parser.add_argument(
        "--steps", type=int, default=steps, help=f"per run; the first {WARM_UP} do not count"
    )
    parser.add_argument("--case", choices=names, action="append", help="repeatable; default: all")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.steps <= WARM_UP:
        parser.error(f"--steps {arguments.steps}: the first {WARM_UP} do not count")
    if os.geteuid() != 0 or len(os.sched_getaffinity(0)) < 2:
        print(f"{parser.prog}: needs root, for network namespaces, and two cores", file=sys.stderr)
        return None
    return arguments


if __name__ == "__main__":
    sys.exit(main())
