"""Slowdowns by seed: how many are named, and how often normal noise is called one.

``python -m tests.faults.slowdowns --runs 300 --first 0 --hours 10`` simulates jobs that are slowed
to about a third by one rank, link, disk or loader, and jobs with nothing but noise, garbage
collection, saves and evaluations. It prints the share that was named, of each kind.
"""

from __future__ import annotations

import argparse
from collections import Counter
from statistics import median

from tests.agent.warnings.slowness.draws import drawn, is_right, limit_s, verdict

NOISE_SEEDS = 1_000_000
"""Seeds of jobs that are not slowed begin here."""
HOUR_S = 3600.0


def slowed(first: int, runs: int) -> None:
    """Print what is said of slowed jobs, those that are not right one by one."""
    right: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    of: Counter[str] = Counter()
    times = []
    for seed in range(first, first + runs):
        job = drawn(seed, is_slowed=True)
        assert job.fault is not None
        found = verdict(job, limit_s(job))
        what = job.fault.what
        of[what] += 1
        if found is not None and is_right(job, found[1]):
            right[what] += 1
            times.append(found[0])
            continue
        wrong[what] += found is not None and found[1].kind != "slow"
        print(f"seed {seed}: {what}, {job.reports} reported: {found and str(found[1])}")
    for what, count in sorted(of.items()):
        print(f"{what:14} named {right[what]:3} of {count:3}, wrong {wrong[what]}")
    total = sum(right.values())
    print(
        f"named {total} of {runs} ({total / runs:.1%}), wrong {sum(wrong.values())}; "
        f"median after {median(times):.0f} s, longest {max(times):.0f} s"
    )


def noisy(first: int, hours: float) -> None:
    """Print the false alarms in so many hours, one job per hour."""
    left_s, seed, alarms = hours * HOUR_S, NOISE_SEEDS + first, 0
    while left_s > 0:
        *_, (_, slowdowns) = drawn(seed, is_slowed=False).run(min(HOUR_S, left_s))
        for one in slowdowns:
            alarms += 1
            print(f"seed {seed}: {one.problem}")
        left_s, seed = left_s - HOUR_S, seed + 1
    print(f"{alarms} false alarms in {hours:g} hours")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--first", type=int, default=0, metavar="SEED")
    parser.add_argument("--hours", type=float, default=10.0)
    arguments = parser.parse_args()
    if arguments.runs:
        slowed(arguments.first, arguments.runs)
    if arguments.hours:
        noisy(arguments.first, arguments.hours)


if __name__ == "__main__":
    main()
