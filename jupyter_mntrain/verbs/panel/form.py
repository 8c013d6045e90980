"""What a panel shows for a choice: rows, checks, predictions, and whether it may be launched. Pure.

Checks are those a launch makes, made beforehand and shown at the row they concern.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import msgspec

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.api import PortStatus
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.job import Participant, Placement
from jupyter_mntrain.model.records.node import Capacity, Interface, NodeInfo
from jupyter_mntrain.plan import arrange, choose_participants, divergences, parse_member
from jupyter_mntrain.plan.lookup import reference
from jupyter_mntrain.plan.members import idle_gpus
from jupyter_mntrain.plan.versions import MUST_AGREE, described, mended
from jupyter_mntrain.show import formats
from jupyter_mntrain.verbs.panel.choices import (
    Choices,
    NodeChoice,
    member_text,
    port_number,
    variables,
)
from jupyter_mntrain.verbs.panel.prediction import Prediction, predict
from jupyter_mntrain.workload.slow_links import slow_link_note
from jupyter_mntrain.workload.workload import Workload

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import NodeView

Level = Literal["passed", "warning", "error"]


class Fix(Record, frozen=True):
    """A button that mends it: the choices as they are then."""

    label: str
    choices: Choices


class Check(Record, frozen=True):
    """One line below a row. An error keeps the job from being launched.

    Args:
        problem: what is wrong; ``None`` where checks passed.
        passed: how many did.
        fix: a button for the problem's fix, where one can be offered.
    """

    level: Level
    problem: Problem | None = None
    fix: Fix | None = None
    passed: int = 0

    @property
    def text(self) -> str:
        """In one sentence; the row names the node."""
        if self.problem is None:
            return f"{formats.plural(self.passed, 'check')} passed"
        return str(self.problem)


class FormRow(Record, frozen=True):
    """One node.

    Args:
        state: in a word, where it is not plainly up.
        gpu_default: what an empty field means.
        gpu_hint: how much there is to choose from.
        gpu_options: texts that the GPUs' field takes.
        interfaces: (label, name); the first is the automatic choice, ``None``.
    """

    name: str
    liveness: str
    state: str
    hardware: str
    can_be_used: bool
    is_used: bool
    is_head: bool
    gpus: str
    gpu_default: str
    gpu_hint: str
    gpu_options: tuple[str, ...]
    interface: str | None
    interfaces: tuple[tuple[str, str | None], ...]
    checks: tuple[Check, ...] = ()

    @property
    def takes_part(self) -> bool:
        return self.is_used and self.can_be_used


class Form(Record, frozen=True):
    """All of a panel but its buttons' own affairs.

    Args:
        settings: checks of what belongs to no node.
        members: as ``--member`` takes them, in rank order.
        head: to be said as ``--head``; ``None`` where the first member is.
        schedule: in effect, the recipe's own or the chosen one; ``None`` for a script.
        blocked: why it cannot be launched, with the row's name; ``None`` if it can.
        summary: what a launch starts.
    """

    rows: tuple[FormRow, ...]
    settings: tuple[Check, ...]
    members: tuple[str, ...] = ()
    head: str | None = None
    schedule: str | None = None
    microbatches: int | None = None
    placements: tuple[Placement, ...] = ()
    prediction: Prediction | None = None
    blocked: Problem | None = None
    summary: str = ""

    @property
    def head_row(self) -> FormRow | None:
        return next((row for row in self.rows if row.is_head and row.takes_part), None)


def make_form(
    nodes: Sequence[NodeView],
    choices: Choices,
    workload: Workload | MntrainError,
    *,
    now_s: float,
    port: PortStatus | MntrainError | None = None,
) -> Form:
    """Everything there is to show.

    Args:
        workload: what is launched, or what is wrong with it.
        now_s: Unix time.
        port: what the head said of the chosen port, once it was asked.
    """
    usable = [fresh(view) for view in nodes if view.info and _is_usable(view)]
    rows = [_row(view, choices, usable, now_s) for view in nodes]
    rows += _gone(choices, {row.name for row in rows})
    findings = _Findings(rows)
    used = [row for row in rows if row.takes_part]
    head = next((row for row in used if row.name == choices.head), used[0] if used else None)
    if head is not None:
        rows[rows.index(head)] = msgspec.structs.replace(head, is_head=True)
    members = _members(used, choices, usable, findings)
    participants, placements = _place(members, head, choices, usable, findings)
    _check_versions(used, choices, usable, findings)
    if head is not None:
        _check_port(head, choices, port, findings)
    ranks = sum(participant.nproc for participant in participants)
    recipe = workload.recipe if isinstance(workload, Workload) else None
    if isinstance(workload, MntrainError):
        findings.add(workload, to_settings=True)
    elif ranks:
        try:
            workload.check(ranks)
        except MntrainError as error:
            findings.add(error, to_settings=True)
    try:
        variables(choices)
    except MntrainError as error:
        findings.add(error, to_settings=True)
    prediction = None
    if recipe and placements:
        prediction = predict(recipe, placements, _capacities(placements, usable))
    named = findings.rows(_with_auto(rows, placements))
    blocked = findings.first_error or (None if used else _nobody(rows))
    return Form(
        rows=named,
        settings=tuple(findings.settings),
        members=tuple(text for _, text in members),
        head=head.name if head and used and head is not used[0] else None,
        schedule=recipe.pipeline.schedule if recipe else None,
        microbatches=recipe.pipeline.microbatches if recipe else None,
        placements=placements,
        prediction=prediction,
        blocked=blocked,
        summary=_summary(ranks, used, findings),
    )


def fresh(view: NodeView) -> NodeInfo:
    """What the node said of itself, with its GPUs as of the last beat."""
    info = view.info
    if info is None:
        raise ValueError(f"{view.address} has not answered yet")
    if not view.beat or not view.beat.gpus:
        return info
    inventory = msgspec.structs.replace(info.inventory, gpus=view.beat.gpus)
    return msgspec.structs.replace(info, inventory=inventory)


class _Findings:
    """Checks as they are made, by the row they concern."""

    def __init__(self, rows: Sequence[FormRow]) -> None:
        self.settings: list[Check] = []
        self.first_error: Problem | None = None
        self._passed: dict[str, int] = {}
        self._of: dict[str, list[Check]] = {row.name: list(row.checks) for row in rows}
        for row in rows:
            for check in row.checks:
                self._note(row.name, check)

    @property
    def warnings(self) -> list[str]:
        """Names of the rows that have one, once for each."""
        return [n for n, checks in self._of.items() for c in checks if c.level == "warning"]

    def passed(self, name: str) -> None:
        self._passed[name] = self._passed.get(name, 0) + 1

    def add(
        self, error: MntrainError, fix: Fix | None = None, *, to_settings: bool = False
    ) -> None:
        """An error of a launch, at the row it names."""
        check = Check(level="error", problem=error.problem, fix=fix)
        self.put(None if to_settings else error.node, check)

    def put(self, name: str | None, check: Check) -> None:
        """Where no row has that name, the settings say it, and name the node."""
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

    def _checks(self, row: FormRow) -> tuple[Check, ...]:
        found = self._of[row.name]
        passed = self._passed.get(row.name, 0)
        if row.takes_part and passed and not found:
            return (Check(level="passed", passed=passed),)
        return tuple(found)

    def _note(self, name: str | None, check: Check) -> None:
        if check.level == "error" and self.first_error is None and check.problem is not None:
            node = name or check.problem.node
            self.first_error = msgspec.structs.replace(check.problem, node=node)


def _is_usable(view: NodeView) -> bool:
    return view.liveness == "up" and not view.is_conflict


def _row(view: NodeView, choices: Choices, usable: Sequence[NodeInfo], now_s: float) -> FormRow:
    info = fresh(view) if view.info else None
    name = reference(info, usable) if info and _is_usable(view) else view.name
    choice = choices.node(name)
    can_be_used = info is not None and _is_usable(view)
    is_used = _is_used(name, choices, info, usable) if can_be_used else choice.is_used is True
    return FormRow(
        name=name,
        liveness=view.liveness,
        state="" if can_be_used else view.liveness,
        hardware=_hardware(info) if info else "",
        can_be_used=can_be_used,
        is_used=is_used,
        is_head=False,
        gpus=choice.gpus,
        gpu_default="all idle" if info and info.inventory.gpus else "1",
        gpu_hint=_gpu_hint(info) if info else "",
        gpu_options=_gpu_options(info) if info else (),
        interface=choice.interface,
        interfaces=(("auto", None), *(_choosable(info, choice) if info else ())),
        checks=() if can_be_used else _silent(view, choices, name, now_s, is_used=is_used),
    )


def _is_used(
    name: str, choices: Choices, info: NodeInfo | None, usable: Sequence[NodeInfo]
) -> bool:
    """Of whom nothing is said: as a launch does that names nobody."""
    if choices.node(name).is_used is not None or not choices.others_take_part:
        return choices.uses(name)
    if any(one.inventory.gpus for one in usable):
        return info is not None and bool(idle_gpus(info))
    return True


def _silent(
    view: NodeView, choices: Choices, name: str, now_s: float, *, is_used: bool
) -> tuple[Check, ...]:
    problem = view.problem or Problem(kind=Kind.SILENT, cause="does not answer")
    if view.liveness == "connecting":
        problem = Problem(kind=Kind.SILENT, cause="has not answered yet")
    elif view.liveness == "suspect" and view.last_seen_s is not None:
        silent = formats.duration(now_s - view.last_seen_s)
        problem = Problem(kind=Kind.SILENT, cause=f"silent for {silent}")
    if not problem.fix:
        problem = msgspec.structs.replace(problem, fix="wait until it answers, or leave it out")
    fix = Fix(label="Leave it out", choices=_without(choices, name)) if is_used else None
    return (Check(level="error" if is_used else "warning", problem=problem, fix=fix),)


def _gone(choices: Choices, there: set[str]) -> list[FormRow]:
    """Nodes that were chosen the last time and that nobody has heard of now."""
    return [
        FormRow(
            name=name,
            liveness="lost",
            state="not found",
            hardware="",
            can_be_used=False,
            is_used=True,
            is_head=False,
            gpus=choice.gpus,
            gpu_default="",
            gpu_hint="",
            gpu_options=(),
            interface=None,
            interfaces=(("auto", None),),
            checks=(
                Check(
                    level="error",
                    problem=Problem(
                        kind=Kind.SILENT,
                        cause="took part last time and is not found now",
                        fix="start its agent, or leave it out",
                    ),
                    fix=Fix(label="Leave it out", choices=_without(choices, name)),
                ),
            ),
        )
        for name, choice in choices.nodes.items()
        if choice.is_used and name not in there
    ]


def _without(choices: Choices, name: str) -> Choices:
    left = msgspec.structs.replace(choices.node(name), is_used=False)
    return msgspec.structs.replace(choices, nodes=choices.nodes | {name: left})


def _members(
    used: Sequence[FormRow], choices: Choices, usable: Sequence[NodeInfo], findings: _Findings
) -> list[tuple[FormRow, str]]:
    """Rows with their ``--member``, those of them that can be had."""
    members = []
    for row in used:
        try:
            text = member_text(row.name, choices.node(row.name))
            choose_participants([parse_member(text)], usable, even_busy=choices.waits)
        except MntrainError as error:
            smaller = _fewer(choices, row, usable)
            findings.put(row.name, Check(level="error", problem=error.problem, fix=smaller))
            continue
        findings.passed(row.name)  # it answers
        findings.passed(row.name)  # its processes have GPUs, or need none
        members.append((row, text))
    return members


def _fewer(choices: Choices, row: FormRow, usable: Sequence[NodeInfo]) -> Fix | None:
    info = next((one for one in usable if reference(one, usable) == row.name), None)
    idle = len(idle_gpus(info)) if info else 0
    if not info or not info.inventory.gpus:
        return None
    if not idle:
        return Fix(label="Leave it out", choices=_without(choices, row.name))
    choice = msgspec.structs.replace(choices.node(row.name), gpus="")
    nodes = choices.nodes | {row.name: choice}
    label = f"Use {formats.plural(idle, 'idle GPU')}"
    return Fix(label=label, choices=msgspec.structs.replace(choices, nodes=nodes))


def _place(
    members: Sequence[tuple[FormRow, str]],
    head: FormRow | None,
    choices: Choices,
    usable: Sequence[NodeInfo],
    findings: _Findings,
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
    except MntrainError as error:
        findings.add(error)
        return participants, ()
    for row, _ in members:
        findings.passed(row.name)  # its interface is up and reaches the others
    if note := slow_link_note(usable, placements):
        freed = {row.name: choices.node(row.name) for row, _ in members}
        freed = {n: msgspec.structs.replace(one, interface=None) for n, one in freed.items()}
        fix = Fix(
            label="Choose it",
            choices=msgspec.structs.replace(choices, nodes={**choices.nodes, **freed}),
        )
        findings.put(None, Check(level="warning", problem=note, fix=fix))
    return participants, placements


def _check_versions(
    used: Sequence[FormRow], choices: Choices, usable: Sequence[NodeInfo], findings: _Findings
) -> None:
    names = {row.name for row in used}
    infos = [info for info in usable if reference(info, usable) in names]
    different = divergences(infos)
    for info in infos:
        own = [one for one in different if one.node == info.name]
        for one in own:
            problem = Problem(
                kind=Kind.MIXED_VERSIONS,
                cause=described(one),
                fix=mended(one) or "install the same version on every node",
            )
            check = Check(level="warning", problem=problem)
            if one.key in MUST_AGREE and not choices.mixed_versions:
                anyway = msgspec.structs.replace(choices, mixed_versions=True)
                fix = Fix(label="Launch anyway", choices=anyway)
                check = Check(level="error", problem=problem, fix=fix)
            findings.put(reference(info, usable), check)
        if not own:
            findings.passed(reference(info, usable))


def _check_port(
    head: FormRow, choices: Choices, port: PortStatus | MntrainError | None, findings: _Findings
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
        findings.put(head.name, Check(level="warning", problem=unknown))
        return
    if port.problem is None:
        findings.passed(head.name)
        return
    nearest = port.next_free
    other = None if nearest is None else msgspec.structs.replace(choices, port=str(nearest))
    findings.put(
        head.name,
        Check(
            level="error",
            problem=msgspec.structs.replace(
                port.problem,
                fix=f"use port {nearest}" if nearest else "leave the port empty for a free one",
            ),
            fix=Fix(label=f"Use {nearest}", choices=other) if other else None,
        ),
    )


def _hardware(info: NodeInfo) -> str:
    names = list(dict.fromkeys(gpu.name for gpu in info.inventory.gpus))
    return ", ".join(names) or f"{formats.plural(info.inventory.cpu_count, 'core')}, no GPU"


def _gpu_hint(info: NodeInfo) -> str:
    every = info.inventory.gpus
    return f"{len(idle_gpus(info))} of {len(every)} idle" if every else "processes"


def _gpu_options(info: NodeInfo) -> tuple[str, ...]:
    idle = idle_gpus(info)
    if not info.inventory.gpus:
        return ("1", "2")
    counts = [str(number) for number in range(len(idle), 0, -1)]
    one_by_one = [f"gpu{gpu.index}" for gpu in idle] if len(info.inventory.gpus) > 1 else []
    return (*counts, *one_by_one)


def _choosable(info: NodeInfo, choice: NodeChoice) -> list[tuple[str, str | None]]:
    known = [
        (_interface_label(interface), interface.name)
        for interface in info.inventory.interfaces
        if interface.is_up and interface.addresses
    ]
    names = {name for _, name in known}
    if choice.interface is not None and choice.interface not in names:
        known.append((f"{choice.interface}, not available now", choice.interface))
    return [(label, name) for label, name in known]


def _interface_label(interface: Interface) -> str:
    speed = _speed(interface)
    if speed is not None:
        return f"{interface.name}, {speed}"
    return (
        f"{interface.name}, {'this machine only' if interface.kind == 'loopback' else '? Mbit/s'}"
    )


def _speed(interface: Interface) -> str | None:
    if interface.capacity is not None:
        return formats.bit_rate(interface.capacity.bytes_per_s)
    if interface.speed_mbit_per_s and interface.speed_mbit_per_s > 0:
        return formats.bit_rate(interface.speed_mbit_per_s * 125_000)
    return None


def _with_auto(rows: Sequence[FormRow], placements: Sequence[Placement]) -> list[FormRow]:
    """The automatic choice says what it is."""
    chosen = {name: p.interface for p in placements for name in (p.node, p.node_id)}
    named = []
    for row in rows:
        interface = chosen.get(row.name)
        label = next((text for text, name in row.interfaces if name == interface), None)
        if interface is None or label is None or row.interface is not None:
            named.append(row)
            continue
        auto: tuple[str, str | None] = (f"auto: {label}", None)
        named.append(msgspec.structs.replace(row, interfaces=(auto, *row.interfaces[1:])))
    return named


def _capacities(
    placements: Sequence[Placement], usable: Sequence[NodeInfo]
) -> dict[str, Capacity | None]:
    interfaces = {
        (info.node_id, interface.name): interface
        for info in usable
        for interface in info.inventory.interfaces
    }
    return {p.node: interfaces[p.node_id, p.interface].capacity for p in placements}


def _nobody(rows: Sequence[FormRow]) -> Problem:
    if not rows:
        fix = "invite one with %mntrain invite, or run mntrain agent run on a node that has joined"
        return Problem(kind=Kind.NODE, cause="no node is answering", fix=fix)
    if any(row.can_be_used for row in rows):
        return Problem(kind=Kind.BAD_SPEC, cause="no node is selected", fix="choose one or more")
    return Problem(kind=Kind.NODE, cause="no node can be used now")


def _summary(ranks: int, used: Sequence[FormRow], findings: _Findings) -> str:
    words = f"{formats.plural(ranks, 'rank')} on {formats.plural(len(used), 'node')}."
    places = findings.warnings
    if places:
        where = ", ".join(dict.fromkeys(places))
        words += f" {formats.plural(len(places), 'warning')} at {where}."
    return words
