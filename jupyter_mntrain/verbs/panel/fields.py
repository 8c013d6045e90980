"""Panel fields: text fields for the most common settings. Pure.

A text that cannot be used stays in its field, with the reason next to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.plan.spec_check import check_name
from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.verbs.launching.job_options import (
    HIGHEST_PRIORITY,
    MOST_NODES,
    MOST_RESTARTS,
)
from jupyter_mntrain.verbs.panel.choices import (
    OF_JOB,
    OF_PLACE,
    OF_RECIPE,
    RESTARTS,
    Choices,
    setting_words,
    without,
)
from jupyter_mntrain.verbs.panel.looks.place import Place

if TYPE_CHECKING:
    from jupyter_mntrain.workload.workload import Workload

OF_SCRIPT = ("project",)
"""Fields that a recipe lacks: it runs the built-in trainer, which needs no files."""

Read = Callable[[Choices], "Workload | MntrainError"]
"""Reads the launch target with these choices."""


class FormField(Record, frozen=True):
    """One field of the form.

    Args:
        name: its field of :class:`Choices`.
        own: the value without a choice, of the recipe or of a launch; empty if it is unknown.
        chosen: the text that was chosen; empty for :attr:`own`.
        problem: why that text cannot be used.
        told: what follows from it, or from its being empty.
        notes: what may be wrong with that.
    """

    name: str
    own: str = ""
    chosen: str = ""
    problem: Problem | None = None
    told: str = ""
    notes: tuple[Problem, ...] = ()

    @property
    def text(self) -> str:
        return self.chosen or self.own


def make_fields(
    choices: Choices,
    read: Read,
    *,
    nodes: int,
    ranks: int,
    is_script: bool,
    place: Place | None = None,
) -> tuple[FormField, ...]:
    """Return the fields with their values, and what is wrong with each.

    Args:
        read: reads the recipe or script.
        nodes: number of participants.
        ranks: number of their processes.
        place: what is known of the job's files, folder and interpreter.
    """
    own = read(without(choices, *OF_RECIPE))
    if isinstance(own, MntrainError):
        # What is wrong in the other settings is said there, and empties no field.
        own = read(without(choices, *OF_RECIPE, "changes"))
    recipe = own.recipe if not isinstance(own, MntrainError) else None
    default_name = "" if isinstance(own, MntrainError) else own.name
    restarts = "0" if choices.restart == "never" else str(RESTARTS)
    found: list[FormField] = []
    if not is_script:
        guilty = _guilty(choices, read, ranks) if recipe else None
        for name in OF_RECIPE:
            problem = _setting_problem(choices, name)
            if guilty is not None and guilty[0] == name:
                problem = problem or guilty[1]
            field = _field(choices, name, _own(recipe, name), problem)
            if name == "steps" and recipe is not None and recipe.train.steps is None:
                field = msgspec.structs.replace(field, told=f"{recipe.train.epochs:g} epochs")
            found.append(field)
    for name in OF_JOB:
        value = {"name": default_name, "priority": "0", "restarts": restarts}.get(name, "")
        found.append(_field(choices, name, value, _option_problem(choices, name, nodes)))
    for name in OF_PLACE if is_script else (one for one in OF_PLACE if one not in OF_SCRIPT):
        problem = place.problem if place and place.field == name else None
        field = _field(choices, name, "", problem)
        if place and name == "project":
            field = msgspec.structs.replace(field, told=place.project, notes=place.notes)
        found.append(field)
    return tuple(found)


def usable(choices: Choices) -> Choices:
    """Return the choices without recipe fields that are invalid whatever else is chosen."""
    return without(choices, *(name for name in OF_RECIPE if _setting_problem(choices, name)))


def _field(choices: Choices, name: str, own: str, problem: Problem | None) -> FormField:
    return FormField(name=name, own=own, chosen=getattr(choices, name).strip(), problem=problem)


def _own(recipe: Recipe | None, name: str) -> str:
    if recipe is None:
        return ""
    section, _, field = OF_RECIPE[name].partition(".")
    value = getattr(getattr(recipe, section), field)
    return "" if value is None else str(value)


def _setting_problem(choices: Choices, name: str) -> Problem | None:
    """Return what is wrong with one field on its own."""
    text = getattr(choices, name).strip()
    if not text:
        return None
    try:
        parse_recipe("", [setting_words(OF_RECIPE[name], text)])
    except MntrainError as error:
        return error.problem
    return None


def _guilty(choices: Choices, read: Read, ranks: int) -> tuple[str, Problem] | None:
    """Return the field without which the recipe could run, and the problem that it causes."""
    chosen = usable(choices)
    problem = _refusal(read(chosen), ranks)
    if problem is None:
        return None
    changed = [name for name in OF_RECIPE if getattr(chosen, name).strip()]
    for name in changed:
        if _refusal(read(without(chosen, name)), ranks) is None:
            return name, problem
    return None


def _refusal(workload: Workload | MntrainError, ranks: int) -> Problem | None:
    if isinstance(workload, MntrainError):
        return workload.problem
    try:
        if ranks:
            workload.check(ranks)
    except MntrainError as error:
        return error.problem
    return None


def _option_problem(choices: Choices, name: str, nodes: int) -> Problem | None:
    text = getattr(choices, name).strip()
    if not text:
        return None
    if name == "name":
        try:
            check_name(text)
        except MntrainError as error:
            return error.problem
        return None
    if name == "priority":
        return _out_of_range(name, text, (-HIGHEST_PRIORITY, HIGHEST_PRIORITY), "0")
    if choices.restart == "never" and (name != "restarts" or text.isdecimal()):
        return _needs_restarts(name)
    most = MOST_RESTARTS if name == "restarts" else min(nodes or MOST_NODES, MOST_NODES)
    instead = str(RESTARTS) if name == "restarts" else "all nodes"
    return _out_of_range(name, text, (1, most), instead)


def _out_of_range(name: str, text: str, limits: tuple[int, int], default: str) -> Problem | None:
    low, high = limits
    digits = text.removeprefix("-")
    is_number = digits.isascii() and digits.isdigit() and len(digits) < 10
    if is_number and low <= int(text) <= high:
        return None
    return Problem(
        kind=Kind.BAD_SPEC,
        cause=f"{name.replace('_', ' ')}: {text!r} is not a whole number from {low} to {high}",
        fix=f"give one, or leave it empty for {default}",
    )


def _needs_restarts(name: str) -> Problem:
    return Problem(
        kind=Kind.BAD_SPEC,
        cause=f"{name.replace('_', ' ')} requires restarts, but the job is never restarted",
        fix="choose when to restart it, or leave this empty",
    )


def problems(fields: Sequence[FormField]) -> tuple[Problem, ...]:
    """Return all problems, in the order of the fields."""
    return tuple(one.problem for one in fields if one.problem is not None)
