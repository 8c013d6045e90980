"""Place check: whether the chosen nodes have the folder and the interpreter of the job."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from jupyter_mntrain.model.records.node import NodeInfo
from jupyter_mntrain.plan.lookup import reference
from jupyter_mntrain.plan.software.workplaces import working_in
from jupyter_mntrain.verbs.panel.checks.check import RowCheck, leave_out
from jupyter_mntrain.verbs.panel.checks.findings import Findings
from jupyter_mntrain.verbs.panel.choices import Choices
from jupyter_mntrain.verbs.panel.looks.place import Place
from jupyter_mntrain.verbs.panel.node_row import FormRow


def check_place(
    used: Sequence[FormRow], choices: Choices, place: Place | None, findings: Findings
) -> list[FormRow]:
    """The rows that have it; all of them while that is not known."""
    if place is None:
        return list(used)
    if place.problem is not None and not place.field:
        cause = f"the folder and the interpreter could not be checked: {place.problem.cause}"
        unknown = msgspec.structs.replace(place.problem, cause=cause)
        findings.put(place.problem.node, RowCheck(level="warning", problem=unknown))
    fit = []
    for row in used:
        found = place.found.get(row.name)
        for problem in found.lacks if found else ():
            fix = leave_out(choices, row.name)
            findings.put(row.name, RowCheck(level="error", problem=problem, fix=fix))
        if not (found and found.lacks):
            fit.append(row)
        if found and not found.lacks:
            findings.passed(row.name)  # it has what the job runs in
    return fit


def placed(usable: Sequence[NodeInfo], place: Place | None) -> list[NodeInfo]:
    """The nodes as they are for this job: with the versions of its own interpreter."""
    found = place.found if place else {}
    names = [reference(info, usable) for info in usable]
    return [
        working_in(info, found[name]) if name in found else info
        for info, name in zip(usable, names, strict=True)
    ]
