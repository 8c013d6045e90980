"""Model card: README.md of an exported model, as the Hugging Face hub reads it. Pure.

Sections of the recipe that say only where files lie are left out, and of paths all but the last
part: a card is made to be published.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any, Final

import msgspec
import tomli_w
import yaml

from jupyter_mntrain.launch.files.hub_names import hub_copy
from jupyter_mntrain.model.records.checkpoint import RunFigures
from jupyter_mntrain.recipe.optimizer.duration import as_written
from jupyter_mntrain.recipe.sections import Recipe

CARD: Final = "README.md"

_NOT_SHOWN: Final = ("checkpoint", "output", "report")
_PATHS: Final = frozenset({"path", "source", "evaluation_path", "chat_template"})
_HUB_FOLDER: Final = re.compile(r"models--(?P<owner>[\w.-]+?)--(?P<name>[\w.-]+)")
"""Folder of the hub's cache."""


def model_card(recipe: Recipe, name: str, figures: RunFigures) -> str:
    """Write a model card: front matter in YAML, then Markdown.

    Args:
        name: of the model's directory.
    """
    base = base_model(recipe)
    header: dict[str, Any] = {"library_name": "transformers", "pipeline_tag": "text-generation"}
    if base is not None and "/" in base:
        header["base_model"] = base
    header["tags"] = ["jupyter_mntrain"]
    front = yaml.safe_dump(header, sort_keys=False)
    others = "data" if base is None else "data and of the base model"
    begun = f"finetuned from `{base}`" if base is not None else "trained from random weights"
    return "\n".join(
        [
            f"---\n{front}# license: the owner's choice, as the hub names it\n---\n",
            f"# {name}\n",
            f"A causal language model, {begun} with jupyter_mntrain.\n",
            "## Data\n",
            *(f"- {line}" for line in _data(recipe, figures)),
            "\n## Figures\n",
            "| | |",
            "| --- | --- |",
            *(f"| {what} | {value} |" for what, value in _figures(recipe, figures)),
            "\n## Settings\n",
            f"What differs from the defaults:\n\n```toml\n{_settings(recipe)}```\n",
            "## License\n",
            f"Not chosen yet: set `license` above, as the licenses of the {others} allow.\n",
        ]
    )


def base_model(recipe: Recipe) -> str | None:
    """The model that training began with: its hub id if known, else its directory's name."""
    if recipe.model.path is None:
        return None
    if copy := hub_copy(recipe.model.path):
        return copy.repo
    path = PurePath(recipe.model.path)
    for part in path.parts:
        if found := _HUB_FOLDER.fullmatch(part):
            return f"{found['owner']}/{found['name']}"
    return path.name


def _data(recipe: Recipe, figures: RunFigures) -> Iterator[str]:
    weights = {one.path: one.weight for one in recipe.data.sources}
    for path in recipe.data.paths:
        weight = f", weight {weights[path]:g}" if path in weights else ""
        use = " (evaluation)" if path == recipe.data.evaluation_path else ""
        yield f"source: `{PurePath(path).name}`{weight}{use}"
    for line in figures.data:
        yield _without_folders(line, recipe.data.paths)
    tokens = figures.steps * recipe.tokens_per_step
    yield f"trained on {tokens:,} tokens, repeats and padding included"


def _without_folders(line: str, paths: Sequence[str]) -> str:
    for path in paths:
        line = line.replace(path, PurePath(path).name)
    return line


def _figures(recipe: Recipe, figures: RunFigures) -> Iterator[tuple[str, str]]:
    total, epochs = recipe.train.steps, recipe.train.epochs
    yield "steps", f"{figures.steps:,}" + ("" if total is None else f" of {total:,}")
    if epochs is not None:
        yield "epochs to make", f"{epochs:g}"
    yield "tokens per step", f"{recipe.tokens_per_step:,}"
    if figures.loss is not None:
        yield "loss of the last step", f"{figures.loss:.4f}"
    if losses := figures.evaluations:
        last, best = max(losses), min(losses, key=losses.__getitem__)
        yield f"evaluation loss, step {last:,}", f"{losses[last]:.4f}"
        yield f"best evaluation loss, step {best:,}", f"{losses[best]:.4f}"
    if figures.tokens_per_s is not None:
        yield "tokens per second", f"{figures.tokens_per_s:,.0f} on {figures.world_size:,} ranks"


def _settings(recipe: Recipe) -> str:
    changed = msgspec.to_builtins(as_written(recipe))  # without defaults
    shown = {
        section: {
            field: _shown(field, value) for field, value in fields.items() if value is not None
        }
        for section, fields in changed.items()
        if section not in _NOT_SHOWN
    }
    return tomli_w.dumps(shown)


def _shown(field: str, value: Any) -> Any:
    if isinstance(value, str) and field in _PATHS:
        return PurePath(value).name
    if isinstance(value, list | tuple):
        return [_shown(field, one) for one in value]
    if isinstance(value, dict):
        return {key: _shown(key, one) for key, one in value.items()}
    return value
