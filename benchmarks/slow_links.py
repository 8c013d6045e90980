"""Compressed transfers on slow links: against a hand-written script, and against none.

    python -m benchmarks.slow_links [--repeats 3] [--steps 10] [--case NAME]... [--json FILE]

Needs root, for the simulated cluster, and two cores. "S2" really computes on two hosts, next to the
script of benchmarks.beside_script, which sends 32-bit values as every such script on CPUs does.
"four hosts" has stages that take a set time (benchmarks.paced) and sends bfloat16 where nothing is
compressed: a message takes 3.45 times a stage's forward pass. So the predicted steps are to each
other as those of a model of 1B parameters on four GPUs of 100 TFLOP/s at 1 Gbit/s. Every choice of
`transfer` has the schedule that a plan makes for it, by links and CPUs as the product measures
them. All sides alternate; compared are median steps.
The shortest useful run: --repeats 1 --steps 8 --case "S2, 50 Mbit/s".
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.beside_script import (
    S2,
    WARM_UP,
    Case,
    Times,
    case_arguments,
    ours,
    planned_pipeline,
    quoted,
    theirs,
)
from benchmarks.configuration import INSTANT, planned
from benchmarks.simulated_job import Probes, shape, train
from jupyter_mntrain.model.records.plan import DeviceSpeed
from jupyter_mntrain.recipe.parse import parse_recipe
from tests.netlab import DATA, Host, Lab, own_lab

TRANSFERS = ("none", "int8", "int8-int4", "int4", "auto")
FOUR_HOSTS = "four hosts"


@dataclass(frozen=True)
class Wanted:
    """Required speed of a choice of `transfer`, over that of another side."""

    transfer: str
    over: str
    least: float


SCRIPT_CASES: Mapping[str, tuple[Case, Sequence[Wanted]]] = {
    case.name: (case, wanted)
    for case, wanted in (
        (Case("S2, 200 Mbit/s", *S2, 200, 1.5), [Wanted("auto", "script", 1.5)]),
        (
            Case("S2, 50 Mbit/s", *S2, 50, 3.0),
            [Wanted("int8", "script", 3.0), Wanted("int4", "script", 4.5)],
        ),
    )
}
PACED_WANTED = (Wanted("int8", "none", 1.7), Wanted("int4", "none", 2.3))

FORWARD_S, MESSAGE = 0.03, 3.45
"""Seconds of a stage's forward pass, and a message's over it: 16, 8 and 4 bits are predicted to
take 2.9, 1.7 and 1.2 times as long as a link that costs nothing."""
HOSTS, HIDDEN, LENGTH, SEQUENCES, MICROBATCHES = 4, 128, 128, 4, 16
MBIT = LENGTH * SEQUENCES * HIDDEN * 16 / (MESSAGE * FORWARD_S) / 1e6
PACED = f"""
[model]
preset = "llama-tiny"
layers = {HOSTS}
hidden_size = {HIDDEN}
intermediate_size = {HIDDEN}
heads = 2
key_value_heads = 2
dtype = "bfloat16"
[data]
sequence_length = {LENGTH}
vocabulary_size = 260
[pipeline]
microbatches = {MICROBATCHES}
split = "even"
{{pipeline}}
[train]
steps = {{steps}}
batch_size = {MICROBATCHES * SEQUENCES}
[memory]
checkpointing = "none"
[report]
to = []
"""


def beside_script(case: Case, lab: Lab, directory: Path, arguments: argparse.Namespace) -> Times:
    lab.reshape(DATA, f"rate {case.mbit}mbit burst 256kb latency 20ms")
    hosts = lab.hosts[:2]
    chosen = {one: planned_pipeline(case, hosts, _transfer(one)) for one in TRANSFERS}
    _show(case.name, chosen)
    times: Times = {name: [] for name in ("script", *TRANSFERS)}
    for _ in range(arguments.repeats):
        times["script"].append(theirs(case, hosts, directory, arguments.steps))
        for name, pipeline in chosen.items():
            times[name].append(ours(case, hosts, directory, arguments.steps, pipeline))
    return times


def four_hosts(lab: Lab, arguments: argparse.Namespace) -> Times:
    shape(lab, (MBIT,) * HOSTS)
    chosen = _planned_paced(lab.hosts)
    _show(FOUR_HOSTS, chosen)
    times: Times = {name: [] for name in TRANSFERS}
    module = ["benchmarks.paced", str(FORWARD_S)]
    for _ in range(arguments.repeats):
        for name, pipeline in chosen.items():
            recipe = PACED.format(pipeline=pipeline, steps=arguments.steps)
            times[name].append(median(train(lab.hosts, recipe, module)[WARM_UP:]))
    return times


def _planned_paced(hosts: Sequence[Host]) -> dict[str, str]:
    with Probes(hosts) as probes:
        links = probes.measure(HOSTS)
    speed = DeviceSpeed(INSTANT, overhead_s=FORWARD_S, is_measured=True)
    found = {}
    for one in TRANSFERS:
        recipe = parse_recipe(PACED.format(pipeline=_transfer(one), steps=1))
        plan = planned(recipe, [speed] * HOSTS, links)
        print(f"{FOUR_HOSTS}: {one} is predicted to take {plan.step_s:.3f} s", flush=True)
        lines = [(*name.split("."), value) for name, value in plan.chosen.items()]
        words = [f"{key} = {quoted(value)}" for part, key, value in lines if part == "pipeline"]
        found[one] = "\n".join([*filter(None, [_transfer(one)]), *words])
    return found


def _transfer(name: str) -> str:
    return "" if name == "auto" else f'transfer = "{name}"'


def _show(case: str, chosen: Mapping[str, str]) -> None:
    for name, pipeline in chosen.items():
        print(f"{case}: {name} is {', '.join(pipeline.splitlines())}", flush=True)


def _missed(case: str, times: Times, wanted: Sequence[Wanted]) -> int:
    """Print a case's medians; how many limits it misses."""
    took = {name: median(seconds) for name, seconds in times.items()}
    base = next(iter(took))
    shown = (f"{name} {one:.3f} s ({took[base] / one:.2f} x)" for name, one in took.items())
    print(f"{case}: {', '.join(shown)}", flush=True)
    missed = 0
    for one in wanted:
        ratio = took[one.over] / took[one.transfer]
        is_met = ratio >= one.least
        missed += not is_met
        print(
            f"{case}: {one.transfer} {ratio:.2f} x {one.over} (limit {one.least}): "
            f"{'met' if is_met else 'NOT met'}",
            flush=True,
        )
    return missed


def main() -> int:
    arguments = case_arguments(__doc__, [*SCRIPT_CASES, FOUR_HOSTS], steps=10)
    if arguments is None:
        return 2
    found: dict[str, Times] = {}
    missed = 0
    with tempfile.TemporaryDirectory() as directory, own_lab(HOSTS) as lab:
        for name, (case, wanted) in SCRIPT_CASES.items():
            if not arguments.case or name in arguments.case:
                found[name] = beside_script(case, lab, Path(directory), arguments)
                missed += _missed(name, found[name], wanted)
        if not arguments.case or FOUR_HOSTS in arguments.case:
            found[FOUR_HOSTS] = four_hosts(lab, arguments)
            missed += _missed(FOUR_HOSTS, found[FOUR_HOSTS], PACED_WANTED)
    if arguments.json:
        arguments.json.write_text(json.dumps(found))
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
