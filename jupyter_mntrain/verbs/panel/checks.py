"""Checks of the panel: those of a launch, made in advance and shown at the row concerned."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec

from jupyter_mntrain.doctor.check import DoctorReport, Finding, not_checked
from jupyter_mntrain.doctor.every import EVERY
from jupyter_mntrain.model.api import PortStatus
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.job import Participant, Placement
from jupyter_mntrain.model.records.node import NodeInfo
from jupyter_mntrain.model.text.foreign import shown_line
from jupyter_mntrain.plan.arrange import arrange
from jupyter_mntrain.plan.lookup import reference
from jupyter_mntrain.plan.members import choose_participants, idle_gpus, parse_member, shared_notes
from jupyter_mntrain.plan.software.gpu_builds import gpu_build_problem
from jupyter_mntrain.plan.software.versions import divergences, version_problem
from jupyter_mntrain.plan.software.workplaces import working_in
from jupyter_mntrain.show import formats
from jupyter_mntrain.verbs.panel.choices import Choices, member_text, port_number, variables
from jupyter_mntrain.verbs.panel.looks.doctor_look import Answer, CheckedNode, Participants
from jupyter_mntrain.verbs.panel.looks.place import Place
from jupyter_mntrain.verbs.panel.node_row import Fix, FormRow, RowCheck, leave_out
from jupyter_mntrain.workload.hardware_notes import rdma_note
from jupyter_mntrain.workload.slow_links import slow_link_note

# Collects the results of checks, by row.


class Findings:
    """The results of checks, by the row that they concern."""

    def __init__(self, rows: Sequence[FormRow]) -> None:
        self.settings: list[RowCheck] = []
        self.first_error: Problem | None = None
        self._passed: Counter[str] = Counter()
        self._of: dict[str, list[RowCheck]] = {row.name: list(row.checks) for row in rows}
        for row in rows:
            for check in row.checks:
                self._note(row.name, check)

    @property
    def warnings(self) -> list[str]:
        """The names of rows with warnings, once per warning."""
        return [n for n, checks in self._of.items() for c in checks if c.level == "slows"]

    def passed(self, name: str) -> None:
        self._passed[name] += 1

    def add(self, error: MntrainError, *, to_settings: bool = False) -> None:
        """Add an error of a launch to the row it names."""
        check = RowCheck(level="stops", problem=error.problem)
        self.put(None if to_settings else error.node, check)

    @contextmanager
    def of_settings(self, but: Sequence[Problem] = ()) -> Iterator[None]:
        """Add an error that is raised in this context to the settings.

        Args:
            but: what is shown elsewhere already.
        """
        try:
            yield
        except MntrainError as error:
            if error.problem not in but:
                self.add(error, to_settings=True)

    def put(self, name: str | None, check: RowCheck) -> None:
        """Add a check to a row; without such a row to the settings, with the node's name."""
        if name not in self._of:
            name = None
        elif check.problem is not None:
            check = msgspec.structs.replace(
                check, problem=msgspec.structs.replace(check.problem, node=None)
            )
        (self._of[name] if name else self.settings).append(check)
        self._note(name, check)

    def rows(self, rows: Sequence[FormRow]) -> tuple[FormRow, ...]:
        return tuple(msgspec.structs.replace(row, checks=self._checks(row)) for row in rows)

    def _checks(self, row: FormRow) -> tuple[RowCheck, ...]:
        found = self._of[row.name]
        passed = self._passed[row.name]
        if row.takes_part and passed and not found:
            return (RowCheck(level="passed", passed=passed),)
        return tuple(found)

    def _note(self, name: str | None, check: RowCheck) -> None:
        if check.level == "stops" and self.first_error is None and check.problem is not None:
            node = name or check.problem.node
            self.first_error = msgspec.structs.replace(check.problem, node=node)


# Whether a row's GPUs or processes are available.


def check_members(
    used: Sequence[FormRow], choices: Choices, usable: Sequence[NodeInfo], findings: Findings
) -> list[tuple[FormRow, str]]:
    """Return the rows whose GPUs or processes are available, each with its ``--member``."""
    members = []
    for row in used:
        try:
            text = member_text(row.name, choices.node(row.name))
            choose_participants([parse_member(text)], usable, even_busy=choices.waits)
        except MntrainError as error:
            smaller = _fewer(choices, row, usable)
            findings.put(row.name, RowCheck(level="stops", problem=error.problem, fix=smaller))
            continue
        findings.passed(row.name)  # it answers
        findings.passed(row.name)  # its processes have GPUs, or do not need any
        members.append((row, text))
    return members


def mark_busy(
    rows: Sequence[FormRow], choices: Choices, usable: Sequence[NodeInfo], findings: Findings
) -> None:
    """Explain which nodes were left out and could run the job if their GPUs were free."""
    for row in rows:
        info = next((one for one in usable if reference(one, usable) == row.name), None)
        is_chosen = choices.node(row.name).is_used is not None or not choices.others_take_part
        if row.is_used or is_chosen or not (info and info.inventory.gpus):
            continue
        try:
            choose_participants([parse_member(row.name)], usable)
        except MntrainError as error:
            findings.put(row.name, RowCheck(level="slows", problem=error.problem))


def _fewer(choices: Choices, row: FormRow, usable: Sequence[NodeInfo]) -> Fix | None:
    info = next((one for one in usable if reference(one, usable) == row.name), None)
    idle = len(idle_gpus(info)) if info else 0
    if not info or not info.inventory.gpus:
        return None
    if not idle:
        return leave_out(choices, row.name)
    label = f"Use {formats.plural(idle, 'idle GPU')}"
    return Fix(label=label, choices=choices.with_node(row.name, gpus=""))


# Rows whose versions differ from the others, or whose torch cannot use the GPUs.


def check_versions(
    used: Sequence[FormRow],
    participants: Sequence[Participant],
    choices: Choices,
    usable: Sequence[NodeInfo],
    findings: Findings,
) -> None:
    names = {row.name for row in used}
    infos = [info for info in usable if reference(info, usable) in names]
    by_row = {one.node: one.gpus for one in participants}
    different = divergences(infos)
    for info in infos:
        if info.inventory.versions.torch is None:
            fix = leave_out(choices, reference(info, usable))
            missing = RowCheck(level="stops", problem=_no_torch(info), fix=fix)
            findings.put(reference(info, usable), missing)
            continue
        own = [one for one in different if one.node == info.name]
        for one in own:
            # The row names the node.
            problem = msgspec.structs.replace(version_problem(one), node=None)
            check = RowCheck(level="slows", problem=problem)
            if not one.is_harmless and not choices.mixed_versions:
                anyway = msgspec.structs.replace(choices, mixed_versions=True)
                fix = Fix(label="Launch anyway", choices=anyway)
                check = RowCheck(level="stops", problem=problem, fix=fix)
            findings.put(reference(info, usable), check)
        unusable = gpu_build_problem(info, by_row.get(reference(info, usable), ()))
        if unusable is not None:
            problem = msgspec.structs.replace(unusable, node=None)
            fix = leave_out(choices, reference(info, usable))
            findings.put(reference(info, usable), RowCheck(level="stops", problem=problem, fix=fix))
        if not own and unusable is None:
            findings.passed(reference(info, usable))


def _no_torch(info: NodeInfo) -> Problem:
    where = f" into {info.python}" if info.python else ""
    return Problem(
        kind=Kind.MIXED_VERSIONS,
        cause="torch is not installed",
        fix=f"install the version that the other nodes have{where}, then restart its agent, which "
        "looks when it starts; or name an interpreter that has it: a job's own is asked each time",
    )


# Whether the interfaces share a network, and whether a faster one exists.


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
        findings.put(shared.node, RowCheck(level="slows", problem=shared))
    for row, _ in members:
        findings.passed(row.name)  # its interface is up and reaches the others
    if note := slow_link_note(usable, placements):
        for row, _ in members:
            choices = choices.with_node(row.name, interface=None)
        fix = Fix(label="Choose it", choices=choices)
        findings.put(None, RowCheck(level="slows", problem=note, fix=fix))
    if rdma := rdma_note(nodes, placements, own):
        findings.put(None, RowCheck(level="slows", problem=rdma))
    return participants, placements


# Whether the chosen nodes have the folder and the interpreter of the job.


def check_place(
    used: Sequence[FormRow], choices: Choices, place: Place | None, findings: Findings
) -> list[FormRow]:
    """Return the rows that have the job's folder and interpreter; all rows if that is not known."""
    if place is None:
        return list(used)
    if place.problem is not None and not place.field:
        cause = f"the folder and the interpreter could not be checked: {place.problem.cause}"
        unknown = msgspec.structs.replace(place.problem, cause=cause)
        findings.put(place.problem.node, RowCheck(level="slows", problem=unknown))
    fit = []
    for row in used:
        found = place.found.get(row.name)
        for problem in found.lacks if found else ():
            fix = leave_out(choices, row.name)
            findings.put(row.name, RowCheck(level="stops", problem=problem, fix=fix))
        if not (found and found.lacks):
            fit.append(row)
        if found and not found.lacks:
            findings.passed(row.name)  # it has what the job runs in
    return fit


def placed(usable: Sequence[NodeInfo], place: Place | None) -> list[NodeInfo]:
    """Return the nodes as this job sees them: with the versions of its own interpreter."""
    found = place.found if place else {}
    names = [reference(info, usable) for info in usable]
    return [
        working_in(info, found[name]) if name in found else info
        for info, name in zip(usable, names, strict=True)
    ]


# Whether the chosen rendezvous port is free on the head.


def check_port(
    head: FormRow, choices: Choices, port: PortStatus | MntrainError | None, findings: Findings
) -> None:
    try:
        wanted = port_number(choices)
    except MntrainError as error:
        findings.add(error, to_settings=True)
        return
    if wanted is None or port is None:
        return
    if isinstance(port, MntrainError):
        cause = f"port {wanted} could not be checked: {port.cause}"
        unknown = msgspec.structs.replace(port.problem, cause=cause)
        findings.put(head.name, RowCheck(level="slows", problem=unknown))
        return
    if port.problem is None:
        findings.passed(head.name)
        return
    nearest = port.next_free
    other = None if nearest is None else msgspec.structs.replace(choices, port=str(nearest))
    findings.put(
        head.name,
        RowCheck(
            level="stops",
            problem=msgspec.structs.replace(
                port.problem,
                fix=f"use port {nearest}" if nearest else "leave the port empty for a free one",
            ),
            fix=Fix(label=f"Use {nearest}", choices=other) if other else None,
        ),
    )


# What the doctor found on the chosen nodes, at their rows.


TOLD = frozenset(check.id for check in EVERY if check.is_for_launch)
"""Checks whose warnings a launch reports; others matter only if they stop it."""


def check_doctor(
    used: Sequence[FormRow],
    participants: Participants,
    choices: Choices,
    examined: CheckedNode,
    findings: Findings,
) -> str:
    """Add the doctor's findings to rows: errors if they stop a launch, warnings if they slow it.

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
        findings.put(node, RowCheck(level="slows", problem=not_checked(node, why)))
    return doctor_line(answer)


def _row_check(one: Finding, choices: Choices, *, can_leave: bool) -> RowCheck | None:
    if one.level == "stops" and choices.skips_doctor:
        return RowCheck(level="slows", problem=one.problem)
    if one.level == "stops":
        fix = leave_out(choices, one.node) if can_leave else None
        return RowCheck(level="stops", problem=one.problem, fix=fix)
    if one.level == "slows" and one.check in TOLD:
        return RowCheck(level="slows", problem=one.problem)
    return None


def doctor_line(answer: Answer | None) -> str:
    """Return the doctor's findings in one line."""
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
