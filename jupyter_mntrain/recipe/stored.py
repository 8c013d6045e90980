"""Stored recipe: a job's recipe with values chosen for its devices, and its run's checkpoints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.lifecycle.running_changes import SET
from jupyter_mntrain.model.records.job import TRAINER, JobSpec
from jupyter_mntrain.model.whereabouts import in_home
from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.recipe.sections import Recipe

# Resolved recipe: with values in place of what it leaves to the devices of its job. Pure.


AUTOMATIC: Final = (
    *("model.dtype", "model.attention", "optimizer.precision"),
    *("memory.loss", "memory.compile"),
)
"""Settings whose ``auto`` depends on the devices, and is resolved once per job."""

PLANNED: Final = (
    "pipeline.schedule",
    "pipeline.microbatches",
    "pipeline.split",
    "pipeline.in_flight",
    "pipeline.deferred",
    "pipeline.transfer",
    "memory.checkpointing",
)
"""Settings whose ``auto`` depends on the speeds of devices and links, and is planned once per
job. They change a step's duration and memory, and its losses only by rounding, which in fewer bits
(``pipeline.transfer``) is no longer that of the last digits."""

_DECIDED: Final = (*AUTOMATIC, *PLANNED)


def resolved(recipe: Recipe, chosen: Mapping[str, str]) -> Recipe:
    """Return the recipe with these values in place of ``auto``; fields that it sets itself stay.

    Args:
        chosen: values by ``section.field``, in TOML without quotes.

    Raises:
        RecipeError: there is no such setting or value.
    """
    values: dict[str, Any] = msgspec.to_builtins(recipe)
    for name, word in chosen.items():
        section, _, field = name.partition(".")
        if name not in _DECIDED:
            raise RecipeError(f"{name}: is not automatic", fix=f"use {', '.join(_DECIDED)}")
        if is_open(recipe, name):
            values.setdefault(section, {})[field] = _value(word)
    try:
        return msgspec.convert(values, Recipe)
    except msgspec.ValidationError as error:
        raise RecipeError(str(error), fix="start the job again") from None


def _value(word: str) -> Any:
    """Parse the value of a setting: a number, a list, or the word itself."""
    try:
        return json.loads(word)
    except ValueError:
        return word


def is_open(recipe: Recipe, name: str) -> bool:
    """Whether the recipe leaves this setting to the devices."""
    section, _, field = name.partition(".")
    return bool(getattr(getattr(recipe, section), field) == "auto")


def values_of(recipe: Recipe) -> dict[str, str]:
    """Return the automatic settings of a recipe that are resolved, as for :func:`resolved`."""
    found = {}
    for name in _DECIDED:
        section, _, field = name.partition(".")
        value = getattr(getattr(recipe, section), field)
        if value != "auto":
            found[name] = value if isinstance(value, str) else json.dumps(value)
    return found


def without_plan(recipe: Recipe) -> Recipe:
    """Return the recipe with defaults for settings that a plan would decide.

    So it runs under torchrun by hand. Microbatches in flight stay open: the trainer measures the
    links.
    """
    return resolved(
        recipe,
        {
            "pipeline.schedule": recipe.schedule,
            "pipeline.microbatches": str(recipe.microbatches),
            "pipeline.split": "even",
            "pipeline.transfer": "none",
            "memory.checkpointing": recipe.checkpointing,
        },
    )


def as_trained(recipe: Recipe) -> Recipe:
    """Return a stored recipe as it was trained, with the defaults of older versions.

    Those were ``float32``, float32 masters and no compilation.
    """
    known = resolved(recipe, {"model.dtype": "float32", "memory.compile": "false"})
    return without_plan(resolved(known, {"optimizer.precision": known.precision}))


# Stored recipe: that of a job, and the directory of its run's checkpoints.


RECIPE_FILE = "recipe.toml"


def overrides_of(spec: JobSpec) -> tuple[str, ...] | None:
    """Return the changes that a job makes to its recipe; ``None`` if it runs no recipe."""
    words = spec.entry[3:]
    is_recipe = spec.entry[:3] == ("-m", TRAINER, RECIPE_FILE) and RECIPE_FILE in spec.files
    if not is_recipe or words[::2] != (SET,) * (len(words) // 2) or len(words) % 2:
        return None
    return words[1::2]


def chosen_words(spec: JobSpec) -> tuple[str, ...]:
    """Return what was chosen for a job, as overrides that precede its own, which win."""
    return tuple(word for one in spec.chosen.items() for word in (SET, "=".join(one)))


def recipe_of(spec: JobSpec) -> Recipe | None:
    """Return the recipe that a job trains, with what was chosen for it; ``None`` for a script.

    Raises:
        RecipeError: it is not valid.
    """
    recipe = written_recipe(spec)
    return recipe if recipe is None or not spec.chosen else resolved(recipe, spec.chosen)


def written_recipe(spec: JobSpec) -> Recipe | None:
    """Return the recipe of a job with ``auto`` as it was written; ``None`` for a script."""
    overrides = overrides_of(spec)
    if overrides is None:
        return None
    return parse_recipe(spec.files[RECIPE_FILE], overrides, name=RECIPE_FILE)


def named_directory(recipe: Recipe, run: str) -> Path | None:
    """Return the run's folder in the recipe's ``checkpoint.directory``; ``None`` if unset."""
    given = recipe.checkpoint.directory
    return None if given is None else in_home(given) / run


def durable_directory(recipe: Recipe, run: str) -> Path | None:
    """Return the run's folder in the recipe's ``checkpoint.copy_to``; ``None`` if unset."""
    given = recipe.checkpoint.copy_to
    return None if given is None else in_home(given) / run
