"""Overrides: changes of a recipe on the command line, before it is checked. Pure."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from typing import Any

from jupyter_mntrain.model.errors import RecipeError

_DURATIONS = ("steps", "epochs")
"""Fields of ``[train]`` of which a recipe has one."""


def override_in(raw: dict[str, Any], override: str) -> None:
    """Change a recipe as TOML has it. Of ``train.steps`` and ``train.epochs`` the last one counts.

    Args:
        override: ``section.field=value``, in TOML spelling; bare words are text.

    Raises:
        RecipeError: it does not have that form.
    """
    place, equals, value = override.partition("=")
    section, dot, field = place.strip().partition(".")
    if not (equals and dot and section and field):
        cause = f"{override}: must have the form section.field=value"
        raise RecipeError(cause, fix="use, for example, train.steps=50")
    table = raw.setdefault(section, {})
    if not isinstance(table, dict):
        raise RecipeError(f"{section} = {table!r}: not a section", fix=f"write [{section}]")
    if is_duration(override):
        # In place of the file's, and of an earlier job's that is resumed.
        for other in _DURATIONS:
            table.pop(other, None)
    try:
        table[field] = tomllib.loads(f"value = {value.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        table[field] = value.strip()


def settle_duration(raw: dict[str, Any]) -> None:
    """Leave the steps of a recipe that gives epochs open.

    Raises:
        RecipeError: it gives both.
    """
    table = raw.get("train")
    if not isinstance(table, dict) or "epochs" not in table:
        return
    if "steps" in table:
        raise RecipeError("train.steps and train.epochs are both given", fix="remove one of them")
    table["steps"] = None


def is_duration(override: str) -> bool:
    """Whether it gives steps or epochs."""
    section, _, field = override.partition("=")[0].strip().partition(".")
    return section == "train" and field in _DURATIONS


def refuse_both_durations(overrides: Iterable[str]) -> None:
    """Refuse what one person gives at once: there the last one is not meant.

    Raises:
        RecipeError: both steps and epochs are given.
    """
    given = [one for one in overrides if is_duration(one)]
    if len({one.partition("=")[0].strip() for one in given}) > 1:
        raise RecipeError("train.steps and train.epochs are both given", fix="remove one of them")
