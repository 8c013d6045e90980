"""Panel form: rows, checks and prediction of the current choices. Pure."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.api import PortStatus
from jupyter_mntrain.model.errors import MntrainError, RecipeError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.job import Participant, Placement
from jupyter_mntrain.model.records.node import NodeInfo
from jupyter_mntrain.plan.choosing.job_plan import JobPlan
from jupyter_mntrain.plan.link_capacities import LinkCapacities
from jupyter_mntrain.plan.lookup import reference
from jupyter_mntrain.recipe.devices import refuse_unable, seats_of
from jupyter_mntrain.recipe.fitting import Fit, fit
from jupyter_mntrain.show import formats
from jupyter_mntrain.verbs.panel.checks import (
    Findings,
    check_doctor,
    check_members,
    check_network,
    check_place,
    check_port,
    check_versions,
    mark_busy,
    placed,
)
from jupyter_mntrain.verbs.panel.choices import Choices, check_variables
from jupyter_mntrain.verbs.panel.fields import (
    FormField,
    Read,
    make_fields,
    problems,
)
from jupyter_mntrain.verbs.panel.fields import usable as usable_fields
from jupyter_mntrain.verbs.panel.looks.doctor_look import CheckedNode
from jupyter_mntrain.verbs.panel.looks.place import Place
from jupyter_mntrain.verbs.panel.looks.plan_look import PlanQuestion
from jupyter_mntrain.verbs.panel.node_row import (
    FormRow,
    RowCheck,
    gone_rows,
    is_usable,
    name_automatic,
    node_row,
)
from jupyter_mntrain.verbs.panel.prediction import Prediction, predict, predict_ranks
from jupyter_mntrain.verbs.panel.source.source_fields import SourceField
from jupyter_mntrain.workload.memory_fit import memory_notes
from jupyter_mntrain.workload.workload import Workload

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import NodeView


Planned = Callable[[PlanQuestion], JobPlan | None]
"""The plan that answers a question; ``None`` if it is not known."""


class Form(Record, frozen=True):
    """Everything that a panel shows.

    Args:
        settings: checks that concern no single node.
        fields: steps, batch, data, python and others, each with what is wrong with it.
        source: fields of the source of nodes; none if they are those of the cluster.
        members: arguments of ``--member``, in rank order.
        head: the value of ``--head``; ``None`` if the first member is the head.
        schedule: in effect, the recipe's own or the chosen one; ``None`` for a script.
        doctor: what the doctor found on the chosen nodes, in one line; empty without any.
        blocked: why it cannot be launched, with the row's name; ``None`` if it can.
        summary: what a launch starts.
        chosen: what the GPUs decide where the recipe leaves that to them; may be empty.
    """

    rows: tuple[FormRow, ...]
    settings: tuple[RowCheck, ...]
    fields: tuple[FormField, ...] = ()
    source: tuple[SourceField, ...] = ()
    members: tuple[str, ...] = ()
    head: str | None = None
    schedule: str | None = None
    microbatches: int | None = None
    placements: tuple[Placement, ...] = ()
    participants: tuple[Participant, ...] = ()
    doctor: str = ""
    prediction: Prediction | None = None
    blocked: Problem | None = None
    summary: str = ""
    chosen: str = ""


def make_form(
    nodes: Sequence[NodeView],
    choices: Choices,
    read: Read,
    *,
    now_s: float,
    is_script: bool = False,
    port: PortStatus | MntrainError | None = None,
    place: Place | None = None,
    planned: Planned = lambda _: None,
    examined: CheckedNode = lambda _: None,
) -> Form:
    """Make the form.

    Args:
        read: reads what to launch, or returns the error from reading it.
        port: the head's answer about the chosen port, once it has been asked.
        place: what is known of the job's own folder and interpreter, once it has been asked.
        planned, examined: the plan, and what the doctor found, once they are there.
    """
    usable = [info for view in nodes if is_usable(view, choices) and (info := view.newest)]
    rows = [node_row(view, choices, usable, now_s) for view in nodes]
    rows += gone_rows(choices, {row.name for row in rows})
    findings = Findings(rows)
    used = [row for row in rows if row.takes_part]
    head = _mark_head(rows, used, choices)
    members = check_members(used, choices, usable, findings)
    participants, placements = check_network(members, head, choices, usable, findings)
    mark_busy(rows, choices, usable, findings)
    fit = check_place(used, choices, place, findings)
    check_versions(fit, participants, choices, placed(usable, place), findings)
    if head is not None:
        check_port(head, choices, port, findings)
    doctor = check_doctor(used, participants, choices, examined, findings)
    ranks = sum(participant.nproc for participant in participants)
    fields = make_fields(
        choices, read, nodes=len(participants), ranks=ranks, is_script=is_script, place=place
    )
    wrong = problems(fields)
    workload = read(usable_fields(choices))
    found = _fit(workload, placements, placed(usable, place))
    prediction = _predicted(workload, found, placements, usable, findings, wrong)
    prediction = _planned(prediction, found, participants, placements, usable, planned)
    _note_memory(prediction, findings)
    check_settings(workload, 0 if placements else ranks, choices, findings, wrong)
    return Form(
        rows=findings.rows(name_automatic(rows, placements)),
        settings=tuple(findings.settings),
        fields=fields,
        members=tuple(text for _, text in members),
        head=head.name if head and head is not used[0] else None,
        **of_recipe(workload),
        placements=placements,
        participants=participants,
        doctor=doctor,
        prediction=prediction,
        blocked=_blocked(rows, findings, wrong),
        summary=_summary(ranks, used, findings),
        chosen=found.said if found else "",
    )


def resolved(choices: Choices, form: Form) -> Choices:
    """Return the choices with every node named, so that nodes that appear later are left out."""
    if choices.on:
        return choices
    nodes = {
        row.name: msgspec.structs.replace(choices.node(row.name), is_used=row.takes_part)
        for row in form.rows
    }
    return msgspec.structs.replace(choices, nodes=nodes, others_take_part=False)


def of_recipe(workload: Workload | MntrainError) -> dict[str, Any]:
    """Return what the form shows of a recipe; nothing for a script."""
    recipe = None if isinstance(workload, MntrainError) else workload.recipe
    if recipe is None:
        return {}
    return {"schedule": recipe.pipeline.schedule, "microbatches": recipe.microbatches}


def _blocked(
    rows: Sequence[FormRow], findings: Findings, wrong: Sequence[Problem]
) -> Problem | None:
    """Return the first reason why nothing can be launched."""
    lacking = None if any(row.takes_part for row in rows) else _nobody(rows)
    return next(filter(None, (findings.first_error, *wrong, lacking)), None)


def _mark_head(rows: list[FormRow], used: Sequence[FormRow], choices: Choices) -> FormRow | None:
    """Mark the head and return its row; ``None`` if no node takes part."""
    head = next((row for row in used if row.name == choices.head), used[0] if used else None)
    if head is not None:
        rows[rows.index(head)] = msgspec.structs.replace(head, is_head=True)
    return head


def check_settings(
    workload: Workload | MntrainError,
    ranks: int,
    choices: Choices,
    findings: Findings,
    wrong: Sequence[Problem],
) -> None:
    with findings.of_settings(but=wrong):
        if isinstance(workload, MntrainError):
            raise workload
        if ranks:
            workload.check(ranks)
    with findings.of_settings():
        check_variables(choices, os.environ)


def _fit(
    workload: Workload | MntrainError, placements: Sequence[Placement], nodes: Sequence[NodeInfo]
) -> Fit | None:
    """Fit the recipe to the chosen GPUs; ``None`` for a script, or without any node."""
    if isinstance(workload, MntrainError) or workload.recipe is None or not placements:
        return None
    by_id = {info.node_id: info for info in nodes}
    members = [Participant(node=one.node, nproc=one.nproc, gpus=one.gpus) for one in placements]
    chosen = [by_id[one.node_id] for one in placements]
    return fit(workload.recipe, seats_of(workload.recipe, members, chosen), {})


def _predicted(
    workload: Workload | MntrainError,
    found: Fit | None,
    placements: Sequence[Placement],
    usable: Sequence[NodeInfo],
    findings: Findings,
    wrong: Sequence[Problem],
) -> Prediction | None:
    """Check whether the recipe can run there, and predict its step."""
    if isinstance(workload, MntrainError) or not placements:
        return None
    recipe, prediction = found.recipe if found else None, None
    if recipe is not None:
        prediction = predict(recipe, placements, _capacities(placements, usable))
    with findings.of_settings(but=wrong):
        workload.check(sum(placement.nproc for placement in placements))
        if recipe is not None and prediction is not None:
            prediction = predict_ranks(prediction, recipe, placements, usable)
    if found is not None:
        try:
            refuse_unable(found.recipe, found.seats)
        except RecipeError as error:
            findings.add(error)
    return prediction


def _planned(
    prediction: Prediction | None,
    found: Fit | None,
    participants: Sequence[Participant],
    placements: Sequence[Placement],
    usable: Sequence[NodeInfo],
    planned: Planned,
) -> Prediction | None:
    """Add the question to plan; if its plan is known, return the plan's prediction."""
    if prediction is None or prediction.memory is None or found is None:
        return prediction
    by_name = {reference(info, usable): info for info in usable}
    nodes = tuple(by_name[one.node] for one in participants)
    question = PlanQuestion(found.recipe, tuple(participants), nodes)
    plan = planned(question)
    if plan is not None:
        prediction = predict(plan.recipe, placements, _capacities(placements, usable))
        prediction = predict_ranks(prediction, plan.recipe, placements, usable)
    return msgspec.structs.replace(prediction, question=question, plan=plan)


def _note_memory(prediction: Prediction | None, findings: Findings) -> None:
    for note in memory_notes((prediction and prediction.memory) or ()):
        findings.put(note.node, RowCheck(level="slows", problem=note))


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
