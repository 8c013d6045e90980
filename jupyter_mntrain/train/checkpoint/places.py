"""Places: the directories that ranks write to, and checks that they are writable."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from jupyter_mntrain.model.environment import CHECKPOINT_VARIABLE, RUN_VARIABLE
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.recipe.stored import durable_directory, named_directory


def unwritable(directory: Path, what: str, field: str) -> RecipeError | None:
    """Create a directory; return an error if that fails or the directory is not writable.

    Args:
        what: is done there, for the message.
        field: of the recipe that names it.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if not os.access(directory, os.W_OK | os.X_OK):
            raise PermissionError(f"{directory} is not writable")
    except OSError as error:
        fix = f"make the directory writable, or set another {field}"
        return RecipeError(f"cannot {what}: {error}", fix=fix)
    return None


def directory_of(recipe: Recipe, environment: Mapping[str, str]) -> Path | None:
    """Return the directory of this run's checkpoints; ``None`` for none.

    Each run has a folder of its own in the recipe's ``checkpoint.directory``; outside of a job it
    is that directory itself.
    """
    named = named_directory(recipe, environment.get(RUN_VARIABLE, ""))
    if named is not None:
        return named
    path = environment.get(CHECKPOINT_VARIABLE)
    return Path(path) if path else None


def copies_of(recipe: Recipe, environment: Mapping[str, str]) -> Path | None:
    """Return the directory of the durable copies of this run's checkpoints; ``None`` for none."""
    return durable_directory(recipe, environment.get(RUN_VARIABLE, ""))
