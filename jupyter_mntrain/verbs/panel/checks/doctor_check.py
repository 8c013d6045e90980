"""Doctor check: what the doctor found on the chosen nodes, at their rows."""

from __future__ import annotations

import time
from collections.abc import Sequence

from jupyter_mntrain.doctor.every import EVERY
from jupyter_mntrain.doctor.finding import DoctorReport, Finding, unexamined
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.text.foreign import shown_line
from jupyter_mntrain.show import formats
from jupyter_mntrain.verbs.panel.checks.check import RowCheck, leave_out
from jupyter_mntrain.verbs.panel.checks.findings import Findings
from jupyter_mntrain.verbs.panel.choices import Choices
from jupyter_mntrain.verbs.panel.looks.doctor_look import Answer, Examined, Participants
from jupyter_mntrain.verbs.panel.node_row import FormRow

TOLD = frozenset(check.id for check in EVERY if check.is_for_launch)
"""Of the others a launch says nothing either, unless they stop it."""


def check_doctor(
    used: Sequence[FormRow],
    participants: Participants,
    choices: Choices,
    examined: Examined,
    findings: Findings,
) -> str:
    """What stops a launch is an error at the node's row, what may slow it down is a warning; a
    person may know better.

    Returns what was found in one line; empty if nobody takes part.
    """
    if not participants:
        return ""
    answer = examined(participants)
    names = {row.name for row in used}
    for one in answer.findings if isinstance(answer, DoctorReport) else ():
        check = _row_check(one, choices, can_leave=len(used) > 1 and one.node in names)
        if check is not None:
            findings.put(one.node, check)
    for node, why in answer.silent.items() if isinstance(answer, DoctorReport) else ():
        findings.put(node, RowCheck(level="warning", problem=unexamined(node, why)))
    return doctor_line(answer)


def _row_check(one: Finding, choices: Choices, *, can_leave: bool) -> RowCheck | None:
    if one.level == "stops" and choices.skips_doctor:
        return RowCheck(level="warning", problem=one.problem)
    if one.level == "stops":
        fix = leave_out(choices, one.node) if can_leave else None
        return RowCheck(level="error", problem=one.problem, fix=fix)
    if one.level == "slows" and one.check in TOLD:
        return RowCheck(level="warning", problem=one.problem)
    return None


def doctor_line(answer: Answer | None) -> str:
    """What the doctor found, in one line."""
    if answer is None:
        return "Doctor: examines the chosen nodes…"
    if isinstance(answer, Problem):
        return f"Doctor: could not ask the nodes: {shown_line(answer.cause)}."
    when = time.strftime("%H:%M", time.localtime(answer.time_s))
    stops, slows, unknown, passed = (
        len(answer.at(level)) for level in ("stops", "slows", "unknown", "passed")
    )
    words = [
        f"{stops} stop{'s' if stops == 1 else ''} a launch" if stops else "",
        f"{slows} may slow it down" if slows else "",
        f"{unknown} unknown" if unknown else "",
    ]
    found = ", ".join(filter(None, words))
    nodes = formats.plural(len(answer.nodes), "node")
    all_passed = f"{formats.plural(passed, 'check')} passed on {nodes}"
    return f"Doctor, {when}: {f'{found}; {all_passed}' if found else all_passed}."
