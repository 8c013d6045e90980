"""Model directories: what keeps the trainer from using one, without torch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

from jupyter_mntrain.launch.files.hub_names import hub_id
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.families import refuse_unknown

CONFIG: Final = "config.json"
ADAPTER_CONFIG: Final = "adapter_config.json"
TOKENIZER: Final = "tokenizer.json"


class WeightFormat(NamedTuple):
    """A format of weights, by the names that transformers gives its files."""

    listing: str
    single: str


FORMATS: Final = (
    WeightFormat("model.safetensors.index.json", "model.safetensors"),
    WeightFormat("pytorch_model.bin.index.json", "pytorch_model.bin"),
)
"""The trainer reads the first whose files are there."""

WEIGHT_NAMES: Final = tuple(name for one in FORMATS for name in one)
"""By which weights are found, the better format first."""


def refuse_directory(directory: Path, path: str) -> None:
    """Raise, with what to do, if a directory is no model that the trainer can use.

    Args:
        path: of the directory, as the recipe has it.

    Raises:
        RecipeError: it is not there, an adapter, or of a family that is not described.
    """
    place = f"model.path = {path}"
    if not directory.is_dir():
        what = "a file, not a directory" if directory.exists() else "no such directory"
        fix = "use a Hugging Face model directory that exists on every node"
        if model := hub_id(path):
            fix += f"; mntrain launch fetches a model of the hub, by hand: hf download {model.repo}"
        _refuse(f"{place}: {what}", fix)
    if (directory / ADAPTER_CONFIG).is_file():
        _refuse(
            f"{place}: an adapter, not a model",
            "merge it into its base model with peft: merge_and_unload(), save_pretrained(DIR)",
        )
    if not (directory / CONFIG).is_file():
        _refuse(f"{place}: no {CONFIG} in it", "use a Hugging Face model directory")
    refuse_unknown(_config(directory / CONFIG, place), place)


def no_tokenizer(path: object) -> RecipeError:
    """The error of a model without a tokenizer, which its recipe needs.

    Args:
        path: as the recipe has it.
    """
    cause = f"model.path = {path}: no {TOKENIZER} in it"
    return RecipeError(cause, fix='copy it there, or set data.tokenizer = "train"')


def lacking_weights(directory: Path, path: str) -> RecipeError | None:
    """What is missing of a directory's weights, in the better format; ``None`` if one is whole.

    Args:
        path: as for :func:`refuse_directory`.

    Raises:
        RecipeError: an index cannot be read.
    """
    place = f"model.path = {path}"
    lacks = list(_lacks(directory, place))
    if not lacks:
        names = " nor ".join(WEIGHT_NAMES)
        return RecipeError(
            f"{place}: contains neither {names}", fix="use a directory with the model's weights"
        )
    return None if None in lacks else lacks[0]


def listed_files(listing: Path) -> dict[str, str]:
    """The file of each tensor, by an index.

    Raises:
        RecipeError: it cannot be read.
    """
    try:
        files: dict[str, str] = json.loads(listing.read_bytes())["weight_map"]
        return {name: str(file) for name, file in files.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        cause = f"model.path = {listing.parent}: cannot read {listing.name}: {reason}"
        raise RecipeError(cause, fix="copy the file again") from None


def _config(file: Path, place: str) -> dict[str, Any]:
    try:
        config = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        _refuse(f"{place}: cannot read {CONFIG}: {error}", "copy the file again")
    if not isinstance(config, dict):
        _refuse(f"{place}: {CONFIG} is not an object", "copy the file again")
    return config


def _lacks(directory: Path, place: str) -> Iterator[RecipeError | None]:
    """What is missing of each format that the directory has anything of; ``None`` is nothing."""
    for listing, single in FORMATS:
        if (directory / listing).is_file():
            files = sorted(set(listed_files(directory / listing).values()))
            lost = [one for one in files if not (directory / one).is_file()]
            cause = f"{place}: {len(lost)} of {len(files)} files that {listing} lists are missing"
            yield (
                RecipeError(cause, fix=f"download the model anew, with {lost[0]}") if lost else None
            )
        if (directory / single).is_file():
            yield None


def _refuse(cause: str, fix: str) -> NoReturn:
    raise RecipeError(cause, fix=fix)
