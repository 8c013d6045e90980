"""What was measured of each fault, and the page that says it.

``MNTRAIN_WRITE_FAULTS=1`` writes it into docs/faults.md.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from jupyter_mntrain.model.sites import MEANINGS

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"


_OF_THE_TEST = re.compile(r"/(tmp|run)/\S*?/(?=kept|jobs)")
"""Where the simulated hosts keep their files."""


class Outcome(NamedTuple):
    """One row.

    Args:
        detected_s: from the fault until a driver knows; ``None`` where nothing has to be known.
        alone: what torchrun says of it by itself.
    """

    fault: str
    detected_s: float | None
    says: str
    fix: str
    alone: str


measured: list[Outcome] = []


def page(rows: list[Outcome]) -> str:
    lines = [
        "# What goes wrong, and what is said of it",
        "",
        "Measured by `tests/faults` on simulated hosts, two ranks on two nodes with Gloo and steps",
        "of 0.1 s, on two cores: from the fault until a driver on a third node knows it by name.",
        "A job that does not get on is called stalled after 10 s or three steps, and after 60 s",
        "before its first step. `MNTRAIN_WRITE_FAULTS=1 pytest -m netlab tests/faults` writes this",
        "page. What torchrun says by itself was measured before, with the same hosts.",
        "`python -m tests.faults.chaos` lets several of them happen at random, by seed.",
        "",
        "| fault | known after | what is said | fix | torchrun alone |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        says = _OF_THE_TEST.sub("…/", row.says)
        took = "–" if row.detected_s is None else f"{row.detected_s:.1f} s"
        lines.append(f"| {row.fault} | {took} | {says} | {row.fix} | {row.alone} |")
    lines += [
        "",
        "## Where ranks wait for each other for ever",
        "",
        "When a job stalls, its ranks are asked for their stacks. Each of these places is known by",
        "its frames (`tests/agent/test_sites.py` has real ranks hang in them).",
        "",
        "| a rank … | if others are elsewhere | if all are there, and data gets through |",
        "| --- | --- | --- |",
    ]
    lines += [f"| {one.is_in} | {one.differ} | {one.together} |" for one in MEANINGS.values()]
    return "\n".join([*lines, ""])
