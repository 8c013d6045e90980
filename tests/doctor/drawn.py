"""Faults drawn at random that are in place before a launch, and what the doctor said of them.

``python -m tests.faults.search --doctor --file FILE`` plays them on a simulated cluster;
``examined.ndjson`` there holds what was played, without its sentences.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.faults.search import results
from tests.faults.search.play import Result

EXAMINED = Path(results.__file__).with_name("examined.ndjson")

APART = 1000
"""Seeds of one sitting are closer than this to each other."""

INTRODUCTION = """
## Faults drawn at random

`python -m tests.faults.search --doctor --runs N --first SEED` makes each on a simulated cluster
and asks the doctor with the options of the launch. Left out is what cannot be known by then: a
port that is taken while torchrun starts, a file whose permission the script itself takes, a
default that `int()` does not take. "Found" counts what names the right kind and node with a fix;
of what is harmless, that nothing was said. A case counts as it was played, also where its miss
has been fixed since: a copied machine was named as a node that is named twice, and of a silent
name server was said that look-ups take long. That is true, costs the ranks seconds at their start
([faults](faults.md)) and ends no job, so it counts as right by now; a launch does not say it.

"""


def examined() -> list[Result]:
    return [one for one in results.read(EXAMINED) if not one.trouble]


def drawn_section(found: Sequence[Result]) -> str:
    """The section of docs/doctor.md: a line per fault, and their sum."""
    by_fault: defaultdict[str, list[Result]] = defaultdict(list)
    for one in found:
        by_fault[one.case.partition(" at launch")[0]].append(one)
    lines = [f"Of seeds {_sittings(one.seed for one in found)}, those with such a fault:\n"]
    lines += ["| fault | cases | found | said |", "| --- | --- | --- | --- |"]
    for fault, cases in sorted(by_fault.items()):
        kinds = sorted({one.kind for case in cases for one in case.verdict[:1]})
        said = ", ".join(f"`{kind}`" for kind in kinds) or "nothing"
        lines.append(f"| {fault} | {len(cases)} | {_right(cases)} | {said} |")
    lines.append(f"| all | {len(found)} | {_right(found)} | |")
    return INTRODUCTION + "\n".join(lines) + "\n"


def _sittings(seeds: Iterable[int]) -> str:
    """``31002 to 31636 and 41002 to 41233``."""
    ranges: list[list[int]] = []
    for seed in sorted(seeds):
        if not ranges or seed - ranges[-1][-1] > APART:
            ranges.append([seed])
        ranges[-1].append(seed)
    return " and ".join(f"{one[0]} to {one[-1]}" for one in ranges)


def _right(cases: Sequence[Result]) -> int:
    return sum(case.score == "right" for case in cases)
