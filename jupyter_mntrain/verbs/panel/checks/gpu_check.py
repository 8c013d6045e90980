"""GPU check: whether a row's GPUs or processes are available."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.records.node import NodeInfo
from jupyter_mntrain.plan.lookup import reference
from jupyter_mntrain.plan.members import choose_participants, idle_gpus, parse_member
from jupyter_mntrain.show import formats
from jupyter_mntrain.verbs.panel.checks.check import Fix, RowCheck, leave_out
from jupyter_mntrain.verbs.panel.checks.findings import Findings
from jupyter_mntrain.verbs.panel.choices import Choices, member_text
from jupyter_mntrain.verbs.panel.node_row import FormRow


def check_members(
    used: Sequence[FormRow], choices: Choices, usable: Sequence[NodeInfo], findings: Findings
) -> list[tuple[FormRow, str]]:
    """The rows whose GPUs or processes are available, each with its ``--member``."""
    members = []
    for row in used:
        try:
            text = member_text(row.name, choices.node(row.name))
            choose_participants([parse_member(text)], usable, even_busy=choices.waits)
        except MntrainError as error:
            smaller = _fewer(choices, row, usable)
            findings.put(row.name, RowCheck(level="error", problem=error.problem, fix=smaller))
            continue
        findings.passed(row.name)  # it answers
        findings.passed(row.name)  # its processes have GPUs, or do not need any
        members.append((row, text))
    return members


def mark_busy(
    rows: Sequence[FormRow], choices: Choices, usable: Sequence[NodeInfo], findings: Findings
) -> None:
    """Say why nodes were left out that could run the job if their GPUs were free."""
    for row in rows:
        info = next((one for one in usable if reference(one, usable) == row.name), None)
        is_chosen = choices.node(row.name).is_used is not None or not choices.others_take_part
        if row.is_used or is_chosen or not (info and info.inventory.gpus):
            continue
        try:
            choose_participants([parse_member(row.name)], usable)
        except MntrainError as error:
            findings.put(row.name, RowCheck(level="warning", problem=error.problem))


def _fewer(choices: Choices, row: FormRow, usable: Sequence[NodeInfo]) -> Fix | None:
    info = next((one for one in usable if reference(one, usable) == row.name), None)
    idle = len(idle_gpus(info)) if info else 0
    if not info or not info.inventory.gpus:
        return None
    if not idle:
        return leave_out(choices, row.name)
    label = f"Use {formats.plural(idle, 'idle GPU')}"
    return Fix(label=label, choices=choices.with_node(row.name, gpus=""))
