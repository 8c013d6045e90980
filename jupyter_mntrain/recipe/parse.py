"""Recipe parser: turns TOML into a checked :class:`Recipe`. Imports no torch or transformers."""

from __future__ import annotations

import functools
import re
import tomllib
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

from jupyter_mntrain.families.presets import DEFAULT_PRESET, PRESETS
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.text.spelling import use_nearest
from jupyter_mntrain.model.whereabouts import in_home
from jupyter_mntrain.recipe.combinations import (
    check_attention,
    check_data,
    check_duration,
    check_keep_best,
    check_memory,
    check_overfitting,
    check_precision,
    check_prompts,
    check_resharding,
    check_schedule,
    check_skipping,
    check_stop_after,
    check_tied,
)
from jupyter_mntrain.recipe.instructions import check_counts, rank_of_stage
from jupyter_mntrain.recipe.schedules import KINDS, fewest_microbatches
from jupyter_mntrain.recipe.sections import (
    ModelSection,
    OptimizerSection,
    Recipe,
    check_adapters,
    check_checkpoint,
    check_syncs,
)
from jupyter_mntrain.recipe.transfers import check_transfers

MOST_KNOWN = 64
"""Size of the cache of parsed recipes: a launch, its plan and its checks need the same one."""

# Overrides: changes of a recipe on the command line, before it is checked. Pure.


_DURATIONS = ("steps", "epochs")
"""Fields of ``[train]``, only one of which a recipe has."""


def override_in(raw: dict[str, Any], override: str) -> None:
    """Apply an override to a recipe's TOML data.

    Of ``train.steps`` and ``train.epochs``, the last wins.

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


def _rename(raw: dict[str, Any]) -> None:
    """Replace old field names by their new ones.

    Raises:
        RecipeError: both names are given.
    """
    for (section, old), new in RENAMED.items():
        table = raw.get(section)
        if not isinstance(table, dict) or old not in table:
            continue
        if new in table:
            cause = f"{section}.{old} and {section}.{new} are both given: they are one field"
            raise RecipeError(cause, fix=f"keep {section}.{new}")
        table[new] = table.pop(old)
        warnings.warn(f"{section}.{old} is now {section}.{new}", FutureWarning, stacklevel=2)


def resolve_duration(raw: dict[str, Any]) -> None:
    """Leave the number of steps open if a recipe gives epochs.

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
    """Whether an override sets steps or epochs."""
    section, _, field = override.partition("=")[0].strip().partition(".")
    return section == "train" and field in _DURATIONS


def refuse_both_durations(overrides: Iterable[str]) -> None:
    """Refuse both durations from one person at once, who cannot mean that the last one wins.

    Raises:
        RecipeError: both steps and epochs are given.
    """
    given = [one for one in overrides if is_duration(one)]
    if len({one.partition("=")[0].strip() for one in given}) > 1:
        raise RecipeError("train.steps and train.epochs are both given", fix="remove one of them")


__all__ = [
    "TOML_FIX",
    "Recipe",
    "check",
    "check_layers",
    "load_recipe",
    "parse_recipe",
    "preset_config",
    "recipe_from",
]

TOML_FIX = 'write tables as [section], text in quotes, and each key once: preset = "llama-8m"'
_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(?P<name>.*?)`")
_PLACE = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")
RENAMED = {("pipeline", "kept_back"): "deferred"}
"""Fields by their old names, which are accepted until 1.0."""
SHAPE_FIELDS = {
    "layers": "num_hidden_layers",
    "hidden_size": "hidden_size",
    "intermediate_size": "intermediate_size",
    "heads": "num_attention_heads",
    "key_value_heads": "num_key_value_heads",
    "tie_embeddings": "tie_word_embeddings",
}


def load_recipe(path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe file.

    Args:
        path: a TOML file.
        overrides: ``section.field=value``, each in TOML spelling; bare words are text.

    Raises:
        RecipeError: naming the field, its value and what is allowed.
    """
    try:
        text = in_home(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        cause = f"recipe {path} cannot be read: {error.strerror}"
        raise RecipeError(cause, fix="check the path") from None
    except UnicodeDecodeError:
        raise RecipeError(f"recipe {path} is not UTF-8 text", fix="save it as UTF-8") from None
    return parse_recipe(text, overrides, name=str(path))


def parse_recipe(text: str, overrides: Sequence[str] = (), *, name: str = "recipe") -> Recipe:
    """Parse a recipe from TOML text; see :func:`load_recipe`. Results are cached."""
    return _parsed(text, tuple(overrides), name)


@functools.lru_cache(maxsize=MOST_KNOWN)
def _parsed(text: str, overrides: tuple[str, ...], name: str) -> Recipe:
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"{name}: not valid TOML: {error}", fix=TOML_FIX) from None
    return recipe_from(raw, overrides)


def recipe_from(raw: dict[str, Any], overrides: Sequence[str] = ()) -> Recipe:
    """Parse a recipe from decoded TOML, like :func:`parse_recipe`."""
    for override in overrides:
        override_in(raw, override)
    _rename(raw)
    resolve_duration(raw)
    try:
        recipe = msgspec.convert(raw, Recipe)
    except msgspec.ValidationError as error:
        raise _explained(raw, str(error)) from None
    _check_model(recipe.model)
    _check_optimizer(recipe)
    check_adapters(recipe.adapters)
    check_attention(recipe)
    check_data(recipe)
    check_memory(recipe)
    check_overfitting(recipe)
    check_syncs(recipe.data_parallel, recipe.evaluation)
    check_prompts(recipe)
    check_stop_after(recipe)
    check_keep_best(recipe)
    check_skipping(recipe)
    check_checkpoint(recipe.checkpoint)
    return recipe


def check(
    recipe: Recipe, world_size: int, *, layers: int | None = None, is_tied: bool | None = None
) -> None:
    """Refuse a recipe that cannot run on ``world_size`` ranks.

    Args:
        layers: the model's, if known from its directory; a preset has its own.
        is_tied: whether its embedding is tied; likewise.

    Raises:
        RecipeError: one line, naming the field and the nearest value that works.
    """
    _check_data_parallel(recipe, world_size)
    stages = recipe.stages(world_size)
    _check_schedule(recipe, recipe.pipeline_ranks(world_size), stages)
    _check_batch(recipe)
    if recipe.model.path is None:
        preset = preset_config(recipe.model)
        layers = int(preset["num_hidden_layers"]) if layers is None else layers
        is_tied = bool(preset.get("tie_word_embeddings")) if is_tied is None else is_tied
    if layers is not None:
        check_layers(recipe, layers, stages)
    check_tied(recipe, stages, is_tied=bool(is_tied))


def check_layers(recipe: Recipe, layers: int, stages: int) -> None:
    """Refuse a split that does not match the model's layers and the pipeline's stages."""
    split = recipe.split
    if layers < stages:
        cause = f"{stages} pipeline stages need {stages} layers or more; the model has {layers}"
        raise RecipeError(cause, fix=f"use a larger model, or fewer stages (at most {layers})")
    if split == "even":
        return
    shown = f"pipeline.split = {list(split)}"
    if len(split) != stages:
        cause = f"{shown}: {len(split)} numbers for {stages} pipeline stages"
        raise RecipeError(cause, fix=f'give {stages} numbers or split = "even"')
    if sum(split) != layers:
        cause = f"{shown}: sums to {sum(split)}, but the model has {layers} layers"
        raise RecipeError(cause, fix=f"make them sum to {layers}")


def preset_config(section: ModelSection) -> dict[str, int | str | bool]:
    """Return the Hugging Face config fields of a preset, with the recipe's overrides."""
    config: dict[str, int | str | bool] = {**PRESETS[section.preset or DEFAULT_PRESET]}
    for ours, theirs in SHAPE_FIELDS.items():
        value = getattr(section, ours)
        if value is not None:
            config[theirs] = value
    return config


def _check_model(model: ModelSection) -> None:
    if model.preset is not None and model.path is not None:
        raise RecipeError("model.preset and model.path are both given", fix="remove one of them")
    if model.path is not None:
        changed = [name for name in SHAPE_FIELDS if getattr(model, name) is not None]
        if changed:
            cause = f"model.{changed[0]}: the model directory defines this"
            raise RecipeError(cause, fix=f"remove {changed[0]} or use a preset")
        return
    if model.preset is not None and model.preset not in PRESETS:
        fix = use_nearest(model.preset, PRESETS, f"use one of {', '.join(PRESETS)}", most=1)
        raise RecipeError(f"model.preset = {model.preset!r}: no such preset", fix=fix)
    config = preset_config(model)
    hidden, heads = int(config["hidden_size"]), int(config["num_attention_heads"])
    groups = int(config["num_key_value_heads"])
    if hidden % (2 * heads):
        cause = f"model.hidden_size = {hidden} is not an even multiple of {heads} heads"
        raise RecipeError(cause, fix=f"use a multiple of {2 * heads}")
    if heads % groups:
        cause = f"model.key_value_heads = {groups} does not divide {heads} heads"
        raise RecipeError(cause, fix=f"use a divisor of {heads}")


def _check_optimizer(recipe: Recipe) -> None:
    section = recipe.optimizer
    check_schedule(recipe)
    if recipe.train.steps is not None:
        check_duration(recipe)
    check_precision(recipe)
    if section.kind == "adafactor":
        for field in ("betas", "epsilon"):
            if getattr(section, field) != getattr(OptimizerSection(), field):
                cause = f"optimizer.{field}: adafactor uses its own rates"
                raise RecipeError(cause, fix=f'leave {field} out or use kind = "adamw"')


def _check_data_parallel(recipe: Recipe, world_size: int) -> None:
    width = recipe.data_parallel.width
    if world_size % width:
        cause = f"{recipe.data_parallel.given}: {world_size} ranks is not a multiple of {width}"
        most = max(one for one in range(1, width) if world_size % one == 0)
        raise RecipeError(cause, fix=f"use {most} ranks, or another number of GPUs")
    check_resharding(recipe, recipe.pipeline_ranks(world_size))


def _check_schedule(recipe: Recipe, ranks: int, stages: int) -> None:
    """Refuse a schedule that cannot run on ``ranks`` ranks per pipeline."""
    per_rank = recipe.stages_per_rank
    name, kind = recipe.schedule, KINDS[recipe.schedule]
    given = f"pipeline.stages_per_rank = {per_rank}"
    if per_rank < kind.fewest:
        cause = f"{given}: {name} needs {kind.fewest}{'' if kind.most else ' or more'}"
        raise RecipeError(cause, fix=f'use {kind.fewest} or schedule = "1f1b"')
    if kind.most is not None and per_rank > kind.most:
        runs = "one" if kind.most == 1 else str(kind.most)
        raise RecipeError(
            f"{given}: {name} runs {runs} per rank",
            fix=f'use {kind.most} or schedule = "interleaved-1f1b"',
        )
    check_counts(recipe, stages)
    is_v = kind.is_v and stages > 1
    check_transfers(recipe.transfer, [rank_of_stage(s, ranks, is_v=is_v) for s in range(stages)])
    count = recipe.microbatches
    fewest = 1 if ranks == 1 else fewest_microbatches(name, ranks, stages)
    if count < fewest:
        what = f"{ranks} ranks" if fewest < stages else f"{stages} pipeline stages"
        cause = f"pipeline.microbatches = {count}: fewer than the {what}"
        raise RecipeError(cause, fix=f"use {fewest} or more")
    rounds = max(1, count // ranks)
    if kind.is_in_rounds and count % rounds:
        fix = f"use {count // ranks * ranks} or {(rounds + 1) * ranks}"
        cause = f"pipeline.microbatches = {count}: {name} on {ranks} ranks needs"
        raise RecipeError(f"{cause} a multiple of its {rounds} rounds", fix=fix)


def _check_batch(recipe: Recipe) -> None:
    parts, size = recipe.microbatches_per_step, recipe.train.batch_size
    if size % parts:
        of_what = f"accumulation {recipe.train.accumulation} x microbatches "
        of_what += str(recipe.microbatches)
        if recipe.data_parallel.width > 1:
            of_what += f" x {recipe.data_parallel.given}"
        cause = f"train.batch_size = {size} is not a multiple of {parts} ({of_what})"
        nearest = sorted({size // parts * parts, (size // parts + 1) * parts} - {0})
        raise RecipeError(cause, fix=f"use {' or '.join(str(n) for n in nearest)}")


def _explained(raw: dict[str, Any], message: str) -> RecipeError:
    """Turn msgspec's message into one that names the field, its value and what is allowed."""
    place = _PLACE.search(message)
    path = place["path"] if place else ""
    unknown = _UNKNOWN_FIELD.match(message)
    if unknown:
        return _unknown(path, unknown["name"])
    shown, value, kind = _at(raw, path)
    cause = f"{shown} = {_toml(value)} is not allowed"
    return RecipeError(cause, fix=f"give {_allowed(kind)}")


def _at(raw: dict[str, Any], path: str) -> tuple[str, Any, inspect.Type]:
    """Return a place like ``data.sources[0].weight``, its value, and what is allowed there.

    Of lists of numbers it is the whole list.
    """
    shown = ""
    value: Any = raw
    kind: inspect.Type = inspect.type_info(Recipe)
    for name in re.findall(r"[^.[\]]+", path):
        if isinstance(kind, inspect.StructType):
            shown += f"{'.' if shown else ''}{name}"
            value = value.get(name) if isinstance(value, dict) else value
            kind = _fields(kind).get(name, kind)
        elif isinstance(kind, inspect.VarTupleType) and _fields(kind.item_type):
            shown += f"[{name}]"
            value = value[int(name)] if isinstance(value, list) else value
            kind = kind.item_type
    return shown, value, kind


def _unknown(path: str, name: str) -> RecipeError:
    what, (_, _, kind) = "field" if path else "section", _at({}, path)
    known = _fields(kind)
    fix = use_nearest(name, known, f"use one of {', '.join(known)}", most=1)
    return RecipeError(f"{path}{'.' if path else ''}{name}: no such {what}", fix=fix)


def _fields(kind: inspect.Type) -> dict[str, inspect.Type]:
    if not isinstance(kind, inspect.StructType):
        return {}
    return {field.encode_name: field.type for field in kind.fields}


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def _allowed(kind: inspect.Type) -> str:
    match kind:
        case inspect.UnionType(types=types):
            choices = (_allowed(t) for t in types if not isinstance(t, inspect.NoneType))
            ordered = sorted(choices, reverse=True)
            return (", or " if "," in ordered[0] else " or ").join(ordered)
        case inspect.IntType(ge=low, le=high):
            return f"a whole number from {low} to {high}"
        case inspect.FloatType():
            return _allowed_number(kind)
        case inspect.LiteralType(values=values):
            quoted = ", ".join(f'"{value}"' for value in values)
            return f"one of {quoted}" if len(values) > 1 else quoted
        case inspect.BoolType():
            return "true or false"
        case inspect.StrType():
            return "text in quotes"
        case inspect.VarTupleType(item_type=item):
            return f"a list, each {_allowed(item)}"
        case inspect.TupleType(item_types=items):
            return f"a list of {len(items)}, each {_allowed(items[0])}"
        case _:
            return "a [section]"


def _allowed_number(kind: inspect.FloatType) -> str:
    low = f"above {kind.gt:g}" if kind.gt is not None else f"from {kind.ge or 0:g}"
    high = f"below {kind.lt:g}" if kind.lt is not None else f"up to {kind.le or 0:g}"
    return f"a number {low} and {high}"
