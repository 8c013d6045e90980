"""The page docs/faults.md: a table of measured faults, and one of the places where ranks wait.

``MNTRAIN_WRITE_FAULTS=1 pytest -m netlab tests/faults`` measures every row and writes the page; a
part of these tests replaces its own rows. ``python -m tests.faults.table`` writes the page with the
rows that were measured last.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple, get_args

from filelock import FileLock

from jupyter_mntrain.model.failure.sites import MEANINGS

WRITES_PAGE = "MNTRAIN_WRITE_FAULTS" in os.environ

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"

INTRODUCTION = """\
# Faults and what the program reports

Measured by `tests/faults` on simulated hosts that share two cores: two ranks on two nodes, Gloo,
steps of 0.1 s. "Known after" is the time from the fault until a driver on a third node reports
it. A job without progress is reported as stalled after 10 s or three steps, whichever is longer;
before its first step, after 60 s if all ranks are waiting, here after 15 s
(`watchdog.early_look_s`). The last column was measured separately, with torchrun alone on the
same hosts. The GPU memory error is raised by the test, without a GPU.

`MNTRAIN_WRITE_FAULTS=1 pytest -m netlab tests/faults` measures the rows again and writes this
page. `python -m tests.faults.search` draws faults of six strata (network, node, rank, script,
disk, trust) from a grammar, by seed, and compares the verdict with what is true of the draw.
With `--stories` it plays faults that follow one another, as they were written down, and with
`--sequences` as they are drawn; `python -m tests.faults.killed` ends parts of the program at any
moment. With `--page` each writes what it has measured to this page.

In an hour of normal training alongside two programs that compute in bursts, nothing was said:
`python -m tests.faults.false_alarms --minutes 60 --load 2` runs a recipe with saves and
evaluations, a script with a Recorder and one without, in turn.
"""

PLACES = """
## Where ranks wait for each other

When a job stalls, mntrain collects the stacks of its ranks and recognizes these places by their
frames. The tests hang real ranks in all of them; in waiting for a GPU only where there is one.

| a rank … | fix if other ranks are elsewhere | fix if all ranks are there and the links work |
| --- | --- | --- |"""

Section = Literal[
    "Faults drawn at random",
    "Faults in sequence",
    "Faults in sequence, drawn",
    "Killed at any moment",
    "Wherever a command runs",
]
"""Of what a command has measured, in the order of the page; each comes after the tables."""

HEADER = "| fault | known after | what is reported | fix | torchrun alone |"
NOT_MEASURED = "–"

_OF_THE_TEST = re.compile(r"/(tmp|run)/\S*?/(?=kept|jobs)")
"""Where the simulated hosts keep their files."""


class Outcome(NamedTuple):
    """One row.

    Args:
        detected_s: from the fault until a driver knows; ``None`` where nothing has to be known.
        alone: what torchrun reports by itself.
    """

    fault: str
    detected_s: float | None
    says: str
    fix: str
    alone: str


measured: list[Outcome] = []


def busyness() -> float:
    """Programs that want each core, at least 1: what takes 2 s alone takes so many times as long.

    1 where the page is written: its figures are those of a machine that does nothing else.
    """
    if WRITES_PAGE:
        return 1.0
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def report(outcome: Outcome, within_s: float, *, busy: float | None = None) -> None:
    """A row that was measured; it is late if a driver knew of the fault only after ``within_s``.

    A late row is not written to the page.

    Args:
        busy: how many times longer that may take; :func:`busyness` unless given.
    """
    took_s, limit_s = outcome.detected_s, within_s * (busyness() if busy is None else busy)
    assert took_s is not None, f"{outcome.fault}: use note() if nothing has to be known"
    assert took_s <= limit_s, f"{outcome.fault}: known after {took_s:.1f} s, not {limit_s:.1f} s"
    measured.append(outcome)


def note(outcome: Outcome) -> None:
    """A row of which a driver has to know nothing."""
    assert outcome.detected_s is None, f"{outcome.fault}: use report(), which has a limit"
    measured.append(outcome)


def page(rows: list[Outcome], sections: Mapping[Section, str] = MappingProxyType({})) -> str:
    """The whole page."""
    lines = [INTRODUCTION, HEADER, "| --- | --- | --- | --- | --- |"]
    for row in rows:
        says = _OF_THE_TEST.sub("…/", row.says)
        took = NOT_MEASURED if row.detected_s is None else f"{row.detected_s:.1f} s"
        lines.append(f"| {row.fault} | {took} | {says} | {row.fix} | {row.alone} |")
    lines += [PLACES]
    lines += [f"| {one.is_in} | {one.differ} | {one.together} |" for one in MEANINGS.values()]
    told = [f"\n## {one}\n{sections[one]}" for one in get_args(Section) if one in sections]
    return "".join(["\n".join([*lines, ""]), *told])


def sections_of(text: str) -> dict[Section, str]:
    """The sections of a page, without their headings."""
    found: dict[Section, str] = {}
    for one in get_args(Section):
        _, heading, rest = text.partition(f"\n## {one}\n")
        if heading:
            found[one] = rest.partition("\n## ")[0]
    return found


def rows_of(text: str) -> list[Outcome]:
    """The measured rows of a page."""
    table = text.partition(HEADER)[2].partition("\n\n")[0]
    rows = []
    for line in table.splitlines()[2:]:
        fault, took, says, fix, alone = (cell.strip() for cell in line.split("|")[1:-1])
        detected_s = None if took == NOT_MEASURED else float(took.removesuffix(" s"))
        rows.append(Outcome(fault, detected_s, says, fix, alone))
    return rows


def write(rows: list[Outcome]) -> None:
    """The page with these rows in place of the same ones before; new ones come last."""
    # Several workers may end at the same time.
    with FileLock(Path(tempfile.gettempdir()) / "mntrain-faults-page.lock"):
        text = PAGE.read_text()
        known = {row.fault: row for row in (*rows_of(text), *rows)}
        PAGE.write_text(page(list(known.values()), sections_of(text)))


def write_section(section: Section, content: str) -> None:
    """The page with another content of a section."""
    text = PAGE.read_text()
    PAGE.write_text(page(rows_of(text), {**sections_of(text), section: content}))


if __name__ == "__main__":
    write([])
