"""The chosen split next to every other one: three ranks, one of them at half speed, eight layers.

    python -m benchmarks.splits [--json FILE]

Needs root, for simulated hosts. Stages take a set time (benchmarks.paced), so that two cores
suffice. The split is chosen before any of them runs, by links as the product measures them; then
all 21 splits run, with what a plan chooses for each. The measured step is the median after the
third.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from itertools import combinations, pairwise
from pathlib import Path
from statistics import median

from benchmarks.configuration import WARM_UP, Configuration, planned
from benchmarks.simulated_job import Probes, shape, train
from tests.netlab import own_lab

LAYERS = 8
LAYER_S = (0.015, 0.03, 0.015)
MBIT = 200
OF_BEST, OVER_EQUAL = 0.95, 1.3
"""Required speed, as a share of the best split's, and over the equal split's."""

Split = tuple[int, ...]


def splits() -> Iterator[Split]:
    """Every way to divide the layers, at least one for each rank."""
    for cuts in combinations(range(1, LAYERS), len(LAYER_S) - 1):
        yield tuple(after - cut for cut, after in pairwise((0, *cuts, LAYERS)))


def configuration(split: Split) -> Configuration:
    return Configuration(
        number=0,
        schedule="eager-1f1b",
        microbatches=12,
        split=split,
        sequences=4,
        sending_mbit=(MBIT,) * len(LAYER_S),
        layer_s=LAYER_S,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        print("splits: needs root, for network namespaces", file=sys.stderr)
        return 2
    found: dict[Split, tuple[float, float]] = {}
    with own_lab(len(LAYER_S)) as lab, Probes(lab.hosts) as probes:
        shape(lab, (MBIT,) * len(LAYER_S))
        links = probes.measure(len(LAYER_S))
        any_one = configuration(next(splits()))
        speeds, is_open = any_one.paced_speeds(), "pipeline.split=auto"
        chosen = json.loads(
            planned(any_one.recipe(is_open), speeds, links).chosen["pipeline.split"]
        )
        for split in splits():
            one = configuration(split)
            plan = planned(one.recipe(), speeds, links)
            steps = train(lab.hosts, one.recipe_text(plan.chosen), one.module())
            found[split] = plan.step_s, median(steps[WARM_UP:])
            shown = "predicted {:.3f} s, measured {:.3f} s".format(*found[split])
            print(f"{split}: {shown}{', chosen' if split == (*chosen,) else ''}", flush=True)
    if arguments.json:
        rows = [{"split": split, "seconds": seconds} for split, seconds in found.items()]
        arguments.json.write_text(json.dumps({"chosen": chosen, "rows": rows}))
    mine, best = found[(*chosen,)][1], min(measured for _, measured in found.values())
    equal = found[_equal()][1]
    print(
        f"the chosen split has {best / mine:.3f} of the best one's speed (limit {OF_BEST}), and "
        f"{equal / mine:.3f} x that of the equal split (limit {OVER_EQUAL})"
    )
    return int(best / mine < OF_BEST or equal / mine < OVER_EQUAL)


def _equal() -> Split:
    """As torch's and this trainer's even split: the first ranks have one more."""
    each, more = divmod(LAYERS, len(LAYER_S))
    return tuple(each + (rank < more) for rank in range(len(LAYER_S)))


if __name__ == "__main__":
    sys.exit(main())
