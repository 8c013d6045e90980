"""Results: a file of lines that grows, and what it says in a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from tests.faults.search.case import STRATA
from tests.faults.search.play import Result
from tests.faults.search.scoring import SCORES


def read(path: Path) -> list[Result]:
    """All results of a file; none if there is no file. A line that was cut off is left out."""
    found = []
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            found.append(msgspec.json.decode(line, type=Result))
        except msgspec.DecodeError:
            continue
    return found


def append(path: Path, result: Result) -> None:
    with path.open("ab") as file:
        file.write(msgspec.json.encode(result, order="deterministic") + b"\n")


class Row(msgspec.Struct, frozen=True):
    """A line of the table: how many cases of a kind were judged how."""

    name: str
    cases: int
    counts: tuple[int, ...]
    """In the order of SCORES."""

    @property
    def cells(self) -> list[str]:
        shares = [f"{100 * count / self.cases:.0f} %" for count in self.counts]
        return [self.name, str(self.cases), *shares]


def rows(results: Sequence[Result]) -> list[Row]:
    """One line per stratum, one of the hard cases, and one of all. Unplayed cases do not count."""
    played = [one for one in results if not one.trouble]
    groups: dict[str, list[Result]] = {
        stratum: [one for one in played if one.stratum == stratum] for stratum in STRATA
    }
    named = {**groups, "hard": [one for one in played if one.is_hard], "all": played}
    return [_row(name, group) for name, group in named.items() if group]


def _row(name: str, group: Sequence[Result]) -> Row:
    counted = Counter(one.score for one in group)
    return Row(name, len(group), tuple(counted[score] for score in SCORES))


INTRODUCTION = """
`python -m tests.faults.search --runs N --first SEED` draws a fault for each seed: which mechanism,
on which node and rank, and when. What is true of it is known from the draw. The verdict after the
case's time is compared with that, as data: the kind of problem, its node, its rank, and whether a
fix is given. "Partly" names the place, but a kind that is too general; "unknown" says that the
cause is not known; "silent" says nothing; "wrong" names another cause or place; "false alarm" says
something although the job goes on. "Hard" cases have two faults, an exit code 0, or a moment before
step 1, during a save or during a restart.
A case counts as it was played first, also where its miss has been fixed since.
"""


def section(results: Sequence[Result]) -> str:
    """The section of docs/faults.md.

    Raises:
        ValueError: nothing was measured.
    """
    played = [one for one in results if not one.trouble]
    if not played:
        raise ValueError("no case was played")
    first, last = min(one.seed for one in played), max(one.seed for one in played)
    seeds = f"Seeds {first} to {last}"
    failed = len(set(range(first, last + 1)) - {one.seed for one in played})
    left_out = f"; {failed} could not be played and do not count" if failed else ""
    return f"{INTRODUCTION}\n{seeds}{left_out}:\n\n{table(results)}\n"


def table(results: Sequence[Result]) -> str:
    """As Markdown."""
    head = ["stratum", "cases", *SCORES]
    lines = [" | ".join(head), " | ".join("---" for _ in head)]
    lines += [" | ".join(row.cells) for row in rows(results)]
    return "\n".join(f"| {line} |" for line in lines)


def table_of_asks(results: Iterable[Result]) -> str:
    """Shares of faults in sequence, by sort and by layer, as Markdown."""
    played = [one for one in results if not one.trouble]
    groups: dict[str, list[Result]] = {}
    for one in played:
        groups.setdefault(one.case.partition(":")[0], []).append(one)
    for one in sorted(played, key=lambda one: one.stratum):
        groups.setdefault(f"layer: {one.stratum}", []).append(one)
    groups["all"] = played
    head = ("faults", "played", "right", "first lines right")
    lines = [head, ("---",) * len(head), *(_cells(name, of) for name, of in groups.items())]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cells(name: str, of: Sequence[Result]) -> tuple[str, ...]:
    asks = [one for result in of for one in result.parameters[0]["asks"]]
    right = sum(one.score == "right" for one in of)
    return (
        name,
        str(len(of)),
        f"{right} ({100 * right / max(1, len(of)):.0f} %)",
        f"{asks.count('right')} of {len(asks)}",
    )


SEQUENCES = """
`python -m tests.faults.search --sequences --runs N --first SEED` draws two or three faults of one
job. Each is asked about at a random moment within 5 s after it must be known, and fixed; up to
8 s after the job has gone on, somebody asks again, and nothing of it may be said any more. A
quarter of the jobs is begun by a notebook's kernel that is killed meanwhile, a quarter by a page
whose Jupyter server is killed and started again. What is said first decides, as above. A sequence
counts as it was played first, also where its miss has been fixed since.
"""


def sequences(results: Sequence[Result]) -> str:
    """Another section of docs/faults.md.

    Raises:
        ValueError: nothing was measured.
    """
    played = [one for one in results if not one.trouble]
    if not played:
        raise ValueError("no sequence was played")
    seeds = sorted(one.seed for one in played)
    begins = [one for one in seeds if one - 1 not in seeds]
    ends = [one for one in seeds if one + 1 not in seeds]
    runs = ", ".join(f"{first} to {last}" for first, last in zip(begins, ends, strict=True))
    return f"{SEQUENCES}\nSeeds {runs}:\n\n{table_of_asks(played)}\n"
