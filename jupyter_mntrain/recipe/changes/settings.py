"""The settings of a run, each with its origin. Pure."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from jupyter_mntrain.families.presets import DEFAULT_PRESET
from jupyter_mntrain.launch.settings import setting_of
from jupyter_mntrain.model.records.job import SetIn
from jupyter_mntrain.model.records.setting import Origin, Setting
from jupyter_mntrain.recipe.memory import fitting_loss, model_config
from jupyter_mntrain.recipe.parse import SHAPE_FIELDS, parse_recipe, preset_config
from jupyter_mntrain.recipe.sections import REPORT_PROJECT, Recipe
from jupyter_mntrain.recipe.stored import RECIPE_FILE, resolved

_CHOSEN: Final = frozenset(
    {
        *("model.preset", *(f"model.{field}" for field in SHAPE_FIELDS)),
        *("pipeline.stages_per_rank", "optimizer.warmup_steps", "adapters.alpha", "train.steps"),
        *("checkpoint.directory", "checkpoint.copy_to", "output.directory"),
        *("report.to", "report.project", "report.run_name"),
    }
)
"""Settings for which mntrain chooses a value if they have none."""


def fields_of(recipe: Recipe) -> Iterator[tuple[str, Any]]:
    """Yield all fields as ``section.field`` and value, in the order of the sections."""
    for section in recipe.__struct_fields__:
        values = getattr(recipe, section)
        for field in values.__struct_fields__:
            yield f"{section}.{field}", msgspec.to_builtins(getattr(values, field))


def settings_of_recipe(
    text: str,
    overrides: Sequence[str] = (),
    *,
    set_in: Mapping[str, SetIn] | None = None,
    name: str = RECIPE_FILE,
    chosen: Mapping[str, str] | None = None,
) -> tuple[Setting, ...]:
    """Return the settings of a recipe, in the order of its sections.

    Args:
        text: TOML.
        overrides: ``section.field=value``; the last one wins.
        set_in: where an override came from, if not from ``--set``, by setting.
        chosen: what was chosen for a job from its nodes' GPUs.

    Raises:
        RecipeError: as for :func:`parse_recipe`.
    """
    recipe = parse_recipe(text, overrides, name=name)
    written = tomllib.loads(text)
    changed = {setting_of(override) for override in overrides}
    known = resolved(recipe, chosen or {})
    fields = dict(resolved_fields(known))
    in_effect = dict(fields_of(known))
    return tuple(
        Setting(name=key, value=value, origin=origin, chosen=other)
        for key, value in fields_of(recipe)
        for other in [_other(fields.get(key, in_effect[key]), value)]
        for origin in [_origin(key, written, changed, set_in or {}, value)]
    )


def _origin(
    name: str,
    written: Mapping[str, Any],
    changed: set[str],
    set_in: Mapping[str, SetIn],
    value: Any,
) -> Origin:
    section, _, field = name.partition(".")
    if name in changed:
        return set_in.get(name, "--set")
    # Epochs take the place of steps that are written.
    if field in written.get(section, {}) and value is not None:
        return "recipe"
    is_chosen = value == "auto" or (value is None and name in _CHOSEN)
    return "auto" if is_chosen else "default"


def resolved_fields(recipe: Recipe) -> Iterator[tuple[str, Any]]:
    """Yield fields whose ``auto`` or missing value is resolved before the start, and the result."""
    if recipe.model.path is None:
        shape = preset_config(recipe.model)
        yield "model.preset", recipe.model.preset or DEFAULT_PRESET
        # Of all families of presets the embeddings are tied only on request.
        shape = {"tie_word_embeddings": False, **shape}
        yield from ((f"model.{ours}", shape[theirs]) for ours, theirs in SHAPE_FIELDS.items())
        yield "data.tokenizer", "train"
    yield "pipeline.stages_per_rank", recipe.stages_per_rank
    if recipe.train.steps is not None or recipe.optimizer.warmup_steps is not None:
        yield "optimizer.warmup_steps", recipe.warmup_steps
    if recipe.trains_adapters:
        yield "adapters.alpha", recipe.adapters.chosen_alpha
    if recipe.model.dtype != "auto":
        yield "optimizer.precision", recipe.precision
    if recipe.data.packing == "auto":
        yield "data.packing", "wrapped" if recipe.data.is_wrapped else "best-fit"
    yield "report.project", recipe.report.project or REPORT_PROJECT
    config = model_config(recipe)
    if config is not None and fitting_loss(recipe, config["vocab_size"]) == "plain":
        yield "memory.loss", "plain"  # a GPU with Liger would use that in place of chunked


def _other(resolved: Any, value: Any) -> Any:
    return None if resolved == value else resolved
