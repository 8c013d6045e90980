"""Panel row of one node: state, GPUs and interfaces to choose from. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from jupyter_mntrain.doctor.check import Level
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.job import Placement
from jupyter_mntrain.model.records.node import NodeInfo
from jupyter_mntrain.plan.lookup import reference
from jupyter_mntrain.plan.members import free_gpus, idle_gpus, will_take_jobs
from jupyter_mntrain.show import formats
from jupyter_mntrain.verbs.panel.choices import Choices
from jupyter_mntrain.verbs.panel.interface_options import interface_options

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import NodeView


class Fix(Record, frozen=True):
    """A button that fixes the problem, and the choices that it sets."""

    label: str
    choices: Choices


def leave_out(choices: Choices, name: str) -> Fix:
    return Fix(label="Leave it out", choices=choices.with_node(name, is_used=False))


class RowCheck(Record, frozen=True):
    """A line below a row: what a launch would say, at the doctor's level.

    Args:
        problem: what is wrong; ``None`` if the checks passed.
        passed: number of checks that passed.
        fix: a button for the problem's fix, if there is one.
    """

    level: Level
    problem: Problem | None = None
    fix: Fix | None = None
    passed: int = 0

    @property
    def text(self) -> str:
        """The finding in one sentence, without the node's name, which the row shows."""
        if self.problem is None:
            return f"{formats.plural(self.passed, 'check')} passed"
        return str(self.problem)


class FormRow(Record, frozen=True):
    """The row of one node.

    Args:
        state: one word; empty if the node is up.
        gpu_default: meaning of an empty field.
        gpu_hint: number of GPUs to choose from.
        gpu_options: valid texts for the GPU field.
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
    checks: tuple[RowCheck, ...] = ()

    @property
    def takes_part(self) -> bool:
        return self.is_used and self.can_be_used


def is_usable(view: NodeView, choices: Choices) -> bool:
    """Whether the node can be chosen: it answers and takes jobs, or will when a job waits."""
    if view.liveness != "up" or view.is_conflict or view.info is None:
        return False
    return will_take_jobs(view.info) if choices.waits else view.info.problem is None


def node_row(view: NodeView, choices: Choices, usable: Sequence[NodeInfo], now_s: float) -> FormRow:
    info = view.newest
    name = reference(info, usable) if info and is_usable(view, choices) else view.name
    choice = choices.node(name)
    can_be_used = info is not None and is_usable(view, choices)
    is_used = _is_used(name, choices, info, usable) if can_be_used else choice.is_used is True
    return FormRow(
        name=name,
        liveness=view.liveness,
        state="" if can_be_used else _state(view),
        hardware=_hardware(info) if info else "",
        can_be_used=can_be_used,
        is_used=is_used,
        is_head=False,
        gpus=choice.gpus,
        gpu_default="all idle" if info and info.inventory.gpus else "1",
        gpu_hint=_gpu_hint(info) if info else "",
        gpu_options=_gpu_options(info) if info else (),
        interface=choice.interface,
        interfaces=(("auto", None), *(interface_options(info, choice) if info else ())),
        checks=() if can_be_used else _silent(view, choices, name, now_s, is_used=is_used),
    )


def _state(view: NodeView) -> str:
    """Return why the node cannot be chosen, in a word or two."""
    if view.liveness != "up" or view.problem is None:
        return view.liveness
    words = {Kind.DRAINED: "drained", Kind.OUT_OF_HOURS: "not offered now"}
    return words.get(view.problem.kind, "takes no jobs")


def _is_used(
    name: str, choices: Choices, info: NodeInfo | None, usable: Sequence[NodeInfo]
) -> bool:
    """Whether a node participates: as chosen, else as in a launch without ``--member``."""
    if choices.node(name).is_used is not None or not choices.others_take_part:
        return choices.uses(name)
    if any(one.inventory.gpus for one in usable):
        return info is not None and bool(idle_gpus(info))
    return True


def _silent(
    view: NodeView, choices: Choices, name: str, now_s: float, *, is_used: bool
) -> tuple[RowCheck, ...]:
    problem = view.problem or Problem(kind=Kind.SILENT, cause="does not answer")
    if view.liveness == "connecting":
        problem = Problem(kind=Kind.SILENT, cause="has not answered yet")
    elif view.liveness == "suspect" and view.last_seen_s is not None:
        silent = formats.duration(now_s - view.last_seen_s)
        problem = Problem(kind=Kind.SILENT, cause=f"silent for {silent}")
    if not problem.fix:
        problem = msgspec.structs.replace(problem, fix="wait until it answers, or leave it out")
    fix = leave_out(choices, name) if is_used else None
    return (RowCheck(level="stops" if is_used else "slows", problem=problem, fix=fix),)


def gone_rows(choices: Choices, there: set[str]) -> list[FormRow]:
    """Return rows of nodes that were chosen last time and are unknown now."""
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
                RowCheck(
                    level="stops",
                    problem=Problem(
                        kind=Kind.SILENT,
                        cause="participated last time but is not found now",
                        fix="start its agent, or leave it out",
                    ),
                    fix=leave_out(choices, name),
                ),
            ),
        )
        for name, choice in choices.nodes.items()
        if choice.is_used and name not in there
    ]


def _hardware(info: NodeInfo) -> str:
    names = list(dict.fromkeys(gpu.name for gpu in info.inventory.gpus))
    return ", ".join(names) or f"{formats.plural(info.inventory.cpu_count, 'core')}, no GPU"


def _gpu_hint(info: NodeInfo) -> str:
    every = info.inventory.gpus
    offered = [gpu for gpu in every if info.availability.offers_gpu(gpu.index)]
    more = "" if len(offered) == len(every) else f", {len(every) - len(offered)} not offered"
    return f"{len(idle_gpus(info))} of {len(offered)} idle{more}" if every else "processes"


def _gpu_options(info: NodeInfo) -> tuple[str, ...]:
    idle, free = idle_gpus(info), free_gpus(info)
    if not info.inventory.gpus:
        return ("1", "2")
    counts = [str(number) for number in range(len(idle), 0, -1)]
    is_choice = len(info.inventory.gpus) > 1 or len(free) > len(idle)
    one_by_one = [f"gpu{gpu.index}" for gpu in free] if is_choice else []
    return (*counts, *one_by_one)


def name_automatic(rows: Sequence[FormRow], placements: Sequence[Placement]) -> list[FormRow]:
    """Add the chosen interface to the label of the automatic choice."""
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
