"""Network check: whether the interfaces share a network, and whether a faster one exists."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.records.job import Participant, Placement
from jupyter_mntrain.model.records.node import NodeInfo
from jupyter_mntrain.plan.arrange import arrange
from jupyter_mntrain.plan.lookup import reference
from jupyter_mntrain.plan.members import choose_participants, parse_member, shared_notes
from jupyter_mntrain.verbs.panel.checks.check import Fix, RowCheck
from jupyter_mntrain.verbs.panel.checks.findings import Findings
from jupyter_mntrain.verbs.panel.choices import Choices, variables
from jupyter_mntrain.verbs.panel.node_row import FormRow
from jupyter_mntrain.workload.hardware_notes import rdma_note
from jupyter_mntrain.workload.slow_links import slow_link_note


def check_network(
    members: Sequence[tuple[FormRow, str]],
    head: FormRow | None,
    choices: Choices,
    usable: Sequence[NodeInfo],
    findings: Findings,
) -> tuple[tuple[Participant, ...], tuple[Placement, ...]]:
    if not members:
        return (), ()
    try:
        wanted = [parse_member(text) for _, text in members]
        participants = choose_participants(wanted, usable, even_busy=choices.waits)
        first = [one for one in participants if head and one.node == head.name]
        participants = (*first, *(one for one in participants if one not in first))
    except MntrainError as error:
        findings.add(error)
        return (), ()
    by_name = {reference(info, usable): info for info in usable}
    try:
        placements = arrange(participants, [by_name[one.node] for one in participants])
        own = {word.partition("=")[0] for word in variables(choices)}
    except MntrainError as error:
        findings.add(error)
        return participants, ()
    nodes = [by_name[one.node] for one in participants]
    for shared in shared_notes(participants, nodes):
        findings.put(shared.node, RowCheck(level="warning", problem=shared))
    for row, _ in members:
        findings.passed(row.name)  # its interface is up and reaches the others
    if note := slow_link_note(usable, placements):
        for row, _ in members:
            choices = choices.with_node(row.name, interface=None)
        fix = Fix(label="Choose it", choices=choices)
        findings.put(None, RowCheck(level="warning", problem=note, fix=fix))
    if rdma := rdma_note(nodes, placements, own):
        findings.put(None, RowCheck(level="warning", problem=rdma))
    return participants, placements
