"""Asked paths: what a recipe reads or writes on the nodes. Pure."""

from __future__ import annotations

from jupyter_mntrain.launch.files.hub_names import hub_copy
from jupyter_mntrain.launch.files.names import is_large_name
from jupyter_mntrain.model.records.doctor.machine import AskedPath, PathUse
from jupyter_mntrain.recipe.sections import Recipe


def asked_paths(recipe: Recipe) -> tuple[AskedPath, ...]:
    """Return the paths that the doctor checks.

    Relative paths of a stored job are left out: they lie in its folder. So is a model of the hub:
    a launch brings it.
    """
    model = None if hub_copy(recipe.model.path) else recipe.model.path
    wanted: tuple[tuple[PathUse, str | None], ...] = (
        ("model", model),
        ("tokenizer", model if recipe.data.tokenizer == "auto" else None),
        *(("data", path) for path in recipe.data.paths),
        ("chat template", recipe.data.chat_template),
        ("checkpoints", recipe.checkpoint.directory),
        ("checkpoints", recipe.checkpoint.copy_to),
        ("output", recipe.output.directory if recipe.output.at_end else None),
    )
    return tuple(
        AskedPath(use=use, path=path)
        for use, path in wanted
        if path and (path.startswith(("/", "~")) or is_large_name(path))
    )
