"""Predicted steps next to measured ones, in configurations drawn by a seed.

    python -m benchmarks.prediction [--count 20] [--seed 0] [--only K]… [--json FILE]

Needs root, for simulated hosts and control groups, and two cores. A configuration has 2 to 4 ranks
on as many hosts, each of which sends at 50 Mbit/s to as fast as loopback; a schedule, microbatches,
and a split. Most have stages that take a set time (benchmarks.paced), of unlike speed by rank. The
others, of two ranks, really compute, with unlike limits of CPU time. Each is predicted before it
runs, from links and CPUs as the product measures them. The measured step is the median after the
third.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from statistics import median

import msgspec

from benchmarks.configuration import REAL, WARM_UP, Configuration, planned
from benchmarks.simulated_job import (
    LOOPBACK_MBIT,
    JobError,
    Pair,
    Probes,
    cpu_speed,
    limited,
    shape,
    train,
)
from jupyter_mntrain.model.records.plan import LinkSpeed
from jupyter_mntrain.recipe.schedules import KINDS, ScheduleName
from tests.netlab import Host, own_lab

COUNT, CLOSE, MOST_OFF, LIMIT_MEDIAN = 20, 0.10, 0.10, 0.04
"""Configurations; how far a close prediction may be off; the share that may be further off; and
the limit of the median deviation."""

MBITS = (50, 100, 200, 500, 1000, LOOPBACK_MBIT)
COMPUTING = 3
"""Of how many configurations one really computes."""


def drawn(count: int, seed: int) -> Iterator[Configuration]:
    """Draw configurations; each schedule once before any comes again."""
    dice = random.Random(seed)
    names: list[ScheduleName] = []
    for number in range(count):
        names = names or dice.sample(list(KINDS), len(KINDS))
        schedule = names.pop()
        computes = number % COMPUTING == COMPUTING - 1
        ranks = 2 if computes else dice.choice((2, 3, 3, 4))
        stages = ranks * (KINDS[schedule].stages_per_rank)
        split = [dice.choice((1, 2) if stages > ranks else (1, 2, 3)) for _ in range(stages)]
        yield Configuration(
            number=number,
            schedule=schedule,
            microbatches=ranks * dice.choice((2, 3, 4)),
            split=tuple(split),
            sequences=dice.choice((1, 2, 4)) * (1 if computes else 2),
            sending_mbit=tuple(dice.choice(MBITS) for _ in range(ranks)),
            layer_s=()
            if computes
            else tuple(dice.choice((0.015, 0.02, 0.03)) for _ in range(ranks)),
            cores=tuple(dice.choice((None, 0.75, 0.5)) for _ in range(ranks)) if computes else (),
        )


def run(
    one: Configuration, hosts: Sequence[Host], links: Mapping[Pair, LinkSpeed]
) -> dict[str, float]:
    """Predict, then measure."""
    with ExitStack() as stack:
        groups = [stack.enter_context(limited(share)) for share in one.cores or [None] * one.ranks]
        speeds = one.paced_speeds() or [
            cpu_speed(host, group, rank, REAL["hidden"], one.sequences * REAL["length"])
            for rank, (host, group) in enumerate(zip(hosts, groups, strict=True))
        ]
        plan = planned(one.recipe(), speeds, links)
        text = one.recipe_text(plan.chosen)
        steps = train(hosts, text, one.module(), groups=groups, pinned=not one.layer_s)
    return {"predicted_s": plan.step_s, "measured_s": median(steps[WARM_UP:])}


def main() -> int:
    arguments = _arguments()
    if os.geteuid() != 0 or len(os.sched_getaffinity(0)) < 2:
        print("prediction: needs root, for network namespaces, and two cores", file=sys.stderr)
        return 2
    found = []
    with own_lab(4) as lab, Probes(lab.hosts) as probes:
        for one in drawn(arguments.count, arguments.seed):
            if arguments.only and one.number not in arguments.only:
                continue
            hosts = lab.hosts[: one.ranks]
            shape(lab, one.sending_mbit)
            links = probes.measure(one.ranks)
            try:
                times = run(one, hosts, links)
            except JobError as error:
                print(f"{one.number:2} {one}: {error}", flush=True)
                times = {"predicted_s": float("nan"), "measured_s": float("nan")}
            off = times["predicted_s"] / times["measured_s"] - 1
            measured = {str(pair): msgspec.to_builtins(speed) for pair, speed in links.items()}
            found.append({**asdict(one), **times, "links": measured, "deviation": off})
            print(
                f"{one.number:2} {one!s:84} predicted {times['predicted_s']:.3f} s, "
                f"measured {times['measured_s']:.3f} s: {off:+.1%}",
                flush=True,
            )
    if arguments.json:
        arguments.json.write_text(json.dumps(found))
    return _verdict([abs(each["deviation"]) for each in found])


def _verdict(off: Sequence[float]) -> int:
    close = sum(one <= CLOSE for one in off)
    wanted = len(off) - int(MOST_OFF * len(off))
    middle = median(off)
    print(f"{close} of {len(off)} within {CLOSE:.0%} (limit {wanted}), median {middle:.1%} off")
    return int(close < wanted or not middle <= LIMIT_MEDIAN)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, action="append", help="a number; repeatable")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
