"""Panel form: rows, checks and prediction of the current choices. Pure."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.api import PortStatus
from jupyter_mntrain.model.errors import MntrainError, RecipeError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.job import Placement
from jupyter_mntrain.model.records.node import NodeInfo
from jupyter_mntrain.plan.link_capacities import LinkCapacities
from jupyter_mntrain.recipe.combinations import check_cards
from jupyter_mntrain.show import formats
from jupyter_mntrain.verbs.panel.checks.check import Check
from jupyter_mntrain.verbs.panel.checks.findings import Findings
from jupyter_mntrain.verbs.panel.checks.gpu_check import check_members, mark_busy
from jupyter_mntrain.verbs.panel.checks.network_check import check_network
from jupyter_mntrain.verbs.panel.checks.place_check import check_place, placed
from jupyter_mntrain.verbs.panel.checks.port_check import check_port
from jupyter_mntrain.verbs.panel.checks.version_check import check_versions
from jupyter_mntrain.verbs.panel.choices import Choices, check_variables
from jupyter_mntrain.verbs.panel.fields import (
    FormField,
    Read,
    make_fields,
    problems,
)
from jupyter_mntrain.verbs.panel.fields import usable as usable_fields
from jupyter_mntrain.verbs.panel.node_row import (
    FormRow,
    fresh,
    gone_rows,
    is_usable,
    name_automatic,
    node_row,
)
from jupyter_mntrain.verbs.panel.place import Place
from jupyter_mntrain.verbs.panel.prediction import Prediction, predict, predict_ranks
from jupyter_mntrain.workload.memory_fit import memory_note
from jupyter_mntrain.workload.workload import Workload

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import NodeView


class Form(Record, frozen=True):
    """Everything that a panel shows.

    Args:
        settings: checks that concern no single node.
        fields: steps, batch, data, python and others, each with what is wrong with it.
        members: arguments of ``--member``, in rank order.
        head: the value of ``--head``; ``None`` if the first member is the head.
        schedule: in effect, the recipe's own or the chosen one; ``None`` for a script.
        blocked: why it cannot be launched, with the row's name; ``None`` if it can.
        summary: what a launch starts.
    """

    rows: tuple[FormRow, ...]
    settings: tuple[Check, ...]
    fields: tuple[FormField, ...] = ()
    members: tuple[str, ...] = ()
    head: str | None = None
    schedule: str | None = None
    microbatches: int | None = None
    placements: tuple[Placement, ...] = ()
    prediction: Prediction | None = None
    blocked: Problem | None = None
    summary: str = ""


def make_form(
    nodes: Sequence[NodeView],
    choices: Choices,
    read: Read,
    *,
    now_s: float,
    is_script: bool = False,
    port: PortStatus | MntrainError | None = None,
    place: Place | None = None,
) -> Form:
    """Make the form.

    Args:
        read: reads what to launch, or returns the error from reading it.
        now_s: Unix time.
        port: the head's answer about the chosen port, once it has been asked.
        place: what is known of the job's own folder and interpreter, once it has been asked.
    """
    usable = [info for view in nodes if is_usable(view, choices) and (info := fresh(view))]
    rows = [node_row(view, choices, usable, now_s) for view in nodes]
    rows += gone_rows(choices, {row.name for row in rows})
    findings = Findings(rows)
    used = [row for row in rows if row.takes_part]
    head = _mark_head(rows, used, choices)
    members = check_members(used, choices, usable, findings)
    participants, placements = check_network(members, head, choices, usable, findings)
    mark_busy(rows, choices, usable, findings)
    check_versions(
        check_place(used, choices, place, findings), choices, placed(usable, place), findings
    )
    if head is not None:
        check_port(head, choices, port, findings)
    ranks = sum(participant.nproc for participant in participants)
    fields = make_fields(
        choices, read, nodes=len(participants), ranks=ranks, is_script=is_script, place=place
    )
    wrong = problems(fields)
    workload = read(usable_fields(choices))
    prediction = _predicted(workload, placements, usable, findings, wrong)
    with findings.of_settings(but=wrong):
        _check_workload(workload, 0 if placements else ranks)
    with findings.of_settings():
        check_variables(choices, os.environ)
    recipe = None if isinstance(workload, MntrainError) else workload.recipe
    named = findings.rows(name_automatic(rows, placements))
    blocked = next(filter(None, (findings.first_error, *wrong)), None)
    blocked = blocked or (None if used else _nobody(rows))
    return Form(
        rows=named,
        settings=tuple(findings.settings),
        fields=fields,
        members=tuple(text for _, text in members),
        head=head.name if head and head is not used[0] else None,
        schedule=recipe.pipeline.schedule if recipe else None,
        microbatches=recipe.pipeline.microbatches if recipe else None,
        placements=placements,
        prediction=prediction,
        blocked=blocked,
        summary=_summary(ranks, used, findings),
    )


def _mark_head(rows: list[FormRow], used: Sequence[FormRow], choices: Choices) -> FormRow | None:
    """The row of the head as it was; ``None`` if no node takes part."""
    head = next((row for row in used if row.name == choices.head), used[0] if used else None)
    if head is not None:
        rows[rows.index(head)] = msgspec.structs.replace(head, is_head=True)
    return head


def _check_workload(workload: Workload | MntrainError, ranks: int) -> None:
    if isinstance(workload, MntrainError):
        raise workload
    if ranks:
        workload.check(ranks)


def _predicted(
    workload: Workload | MntrainError,
    placements: Sequence[Placement],
    usable: Sequence[NodeInfo],
    findings: Findings,
    wrong: Sequence[Problem],
) -> Prediction | None:
    """Check whether it can run there, and predict what it will do."""
    if isinstance(workload, MntrainError) or not placements:
        return None
    recipe, prediction = workload.recipe, None
    if recipe is not None:
        prediction = predict(recipe, placements, _capacities(placements, usable))
    with findings.of_settings(but=wrong):
        workload.check(sum(placement.nproc for placement in placements))
        if recipe is not None and prediction is not None:
            prediction = predict_ranks(prediction, recipe, placements, usable)
    if recipe is not None:
        by_id = {info.node_id: info for info in usable}
        try:
            check_cards(recipe, [(by_id[place.node_id], place.gpus) for place in placements])
        except RecipeError as error:
            findings.add(error)
    if prediction and (note := memory_note(prediction.memory or ())):
        findings.put(note.node, Check(level="warning", problem=note))
    return prediction


def _capacities(placements: Sequence[Placement], usable: Sequence[NodeInfo]) -> LinkCapacities:
    chosen = {(place.node_id, place.interface) for place in placements}
    capacities = LinkCapacities()
    for info in usable:
        for one in info.inventory.interfaces:
            if (info.node_id, one.name) in chosen:
                capacities.add(info.name, one.given, one.links)
    return capacities


def _nobody(rows: Sequence[FormRow]) -> Problem:
    if not rows:
        fix = "invite one with %mntrain invite, or run mntrain agent run on a node that has joined"
        return Problem(kind=Kind.NODE, cause="no node is answering", fix=fix)
    if any(row.can_be_used for row in rows):
        return Problem(kind=Kind.BAD_SPEC, cause="no node is selected", fix="choose one or more")
    return Problem(kind=Kind.NODE, cause="no node can be used now")


def _summary(ranks: int, used: Sequence[FormRow], findings: Findings) -> str:
    words = f"{formats.plural(ranks, 'rank')} on {formats.plural(len(used), 'node')}."
    places = findings.warnings
    if places:
        where = ", ".join(dict.fromkeys(places))
        words += f" {formats.plural(len(places), 'warning')} at {where}."
    return words
