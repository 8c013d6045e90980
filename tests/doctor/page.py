"""The page docs/doctor.md: each check, the faults that tests make, and what is said of them.

``python -m tests.doctor.page`` writes it.
"""

from __future__ import annotations

from pathlib import Path

from jupyter_mntrain.doctor.every import EVERY, examine
from tests.doctor.before_launch import BEFORE_LAUNCH
from tests.doctor.checklists import CHECKLISTS, checklist_table, fault_table
from tests.doctor.drawn import drawn_section, examined
from tests.doctor.faults import FAULTS
from tests.doctor.healthy import healthy
from tests.doctor.subjects import SUBJECTS

PAGE = Path(__file__).parents[2] / "docs" / "doctor.md"

BEGIN = "<!-- written by python -m tests.doctor.page -->\n"

LISTS = """
## Checklists

What people go through by hand before they trust several machines, and what does it here: every item
of three guides and of an acceptance, with a fault that the tests made and what was said of it.
"""

CASES = """
## Cases of the fault tests

`tests/faults` runs the doctor in front of every launch: it names what is there, and nothing else.
Of its cases ([faults](faults.md)), these are there before a launch. The others come while a job
runs, and a port that another program takes between lease and start is free until then. Of the
faults whose fixes `tests/faults/test_fixes.py` carries out, 12 are there by then: the doctor names
11, and not a port that is taken, which a script gets from an argument in a way of its own.

"""

EXAMINED = """
## What is examined

Each point, and the checks that examine it.

"""

LEVELS = {"stops": "stops a launch", "slows": "slows"}


def table() -> str:
    """Each fault of the tests, with what the check says of it."""
    lines = [
        "| check | looks at | fault | level | said | fix |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for check in EVERY:
        for fault in (one for one in FAULTS if one.check == check.id):
            found = next(one for one in examine(fault.make(healthy())) if one.problem)
            assert found.problem is not None
            cells = (
                f"`{check.id}`",
                check.looks_at,
                fault.made,
                LEVELS[found.level],
                found.problem.cause,
                found.problem.fix,
            )
            lines.append(f"| {' | '.join(one.replace('|', chr(92) + '|') for one in cells)} |")
    return "\n".join(lines) + "\n"


def written() -> str:
    """The page as it has to be."""
    return "".join(
        (
            PAGE.read_text().partition(BEGIN)[0],
            BEGIN,
            table(),
            EXAMINED,
            checklist_table(SUBJECTS, "point"),
            LISTS,
            *(
                f"\n### {heading}\n\n{fault_table(items, 'checked by hand')}"
                for heading, items in CHECKLISTS.items()
            ),
            CASES,
            fault_table(BEFORE_LAUNCH, "case"),
            drawn_section(examined()),
        )
    )


if __name__ == "__main__":
    PAGE.write_text(written())
