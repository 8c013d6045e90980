"""Stored recipe: that of a job, and the directory of its run's checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from jupyter_mntrain.launch.checkpoints.places import checkpoints_of_run
from jupyter_mntrain.model.errors import SpecError, bad_argument
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.lifecycle.running_changes import SET
from jupyter_mntrain.model.records.job import TRAINER, JobSpec
from jupyter_mntrain.model.whereabouts import in_home
from jupyter_mntrain.recipe.devices.settled import settled
from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.recipe.parts.overrides import refuse_both_durations
from jupyter_mntrain.recipe.sections import Recipe

RECIPE_FILE = "recipe.toml"


def overrides_of(spec: JobSpec) -> tuple[str, ...] | None:
    """The changes that a job makes to the recipe it carries; ``None`` if it runs no recipe."""
    words = spec.entry[3:]
    is_recipe = spec.entry[:3] == ("-m", TRAINER, RECIPE_FILE) and RECIPE_FILE in spec.files
    if not is_recipe or words[::2] != (SET,) * (len(words) // 2) or len(words) % 2:
        return None
    return words[1::2]


def chosen_words(spec: JobSpec) -> tuple[str, ...]:
    """What was chosen for a job, as changes of its recipe. They go before its own, which win."""
    return tuple(word for one in spec.chosen.items() for word in (SET, "=".join(one)))


def recipe_of(spec: JobSpec) -> Recipe | None:
    """The recipe that a job trains by, with what was chosen for it; ``None`` for a script.

    Raises:
        RecipeError: it is not valid.
    """
    recipe = written_recipe(spec)
    return recipe if recipe is None or not spec.chosen else settled(recipe, spec.chosen)


def written_recipe(spec: JobSpec) -> Recipe | None:
    """Like :func:`recipe_of`, with ``auto`` as it was written."""
    overrides = overrides_of(spec)
    if overrides is None:
        return None
    return parse_recipe(spec.files[RECIPE_FILE], overrides, name=RECIPE_FILE)


def with_settings(spec: JobSpec, settings: Sequence[str]) -> JobSpec:
    """The same job with changes of its recipe.

    Args:
        settings: ``section.field=value``.

    Raises:
        SpecError: it runs a script, which has no recipe; or ``settings`` is no list.
        RecipeError: a field or value is wrong.
    """
    if isinstance(settings, str):
        raise bad_argument("settings", settings, f"a list: [{settings!r}]")
    if not settings:
        return spec
    if overrides_of(spec) is None:
        raise SpecError(
            f"{settings[0]}: this job runs {' '.join(spec.entry[:2])}, not a recipe",
            fix="pass its arguments after --",
        )
    refuse_both_durations(settings)
    words = (word for one in settings for word in (SET, one))
    changed = msgspec.structs.replace(spec, entry=(*spec.entry, *words))
    recipe_of(changed)
    return changed


def chosen_as_for(spec: JobSpec, other: JobSpec) -> JobSpec:
    """The same job with what was chosen for another one that runs the same recipe.

    What depends on devices, or on how fast they and their links are just now, is then not chosen
    anew: another schedule adds up in another order, and the losses differ by rounding.
    """
    if overrides_of(spec) is None:
        return spec
    entry = (*spec.entry[:3], *chosen_words(other), *spec.entry[3:])
    return msgspec.structs.replace(spec, entry=entry)


def named_directory(recipe: Recipe, run: str) -> Path | None:
    """The run's folder in the recipe's ``checkpoint.directory``; ``None`` if it names none."""
    given = recipe.checkpoint.directory
    return None if given is None else in_home(given) / run


def durable_directory(recipe: Recipe, run: str) -> Path | None:
    """The run's folder in the recipe's ``checkpoint.copy_to``; ``None`` if it names none."""
    given = recipe.checkpoint.copy_to
    return None if given is None else in_home(given) / run


def checkpoints_on_node(spec: JobSpec, job_id: JobId, jobs: Path) -> Path:
    """The directory of a job's checkpoints on the node that this runs on.

    Args:
        jobs: the directory of the node's jobs.

    Raises:
        RecipeError: its recipe is not valid.
    """
    run, recipe = spec.run_of(job_id), recipe_of(spec)
    named = None if recipe is None else named_directory(recipe, run)
    return named or checkpoints_of_run(jobs, run)
