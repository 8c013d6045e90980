"""Model directories: finds what keeps the trainer from using one, without torch."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path, PurePath
from typing import Any, Final, NamedTuple, NoReturn

from jupyter_mntrain.families import refuse_unknown
from jupyter_mntrain.launch.files.hub_names import hub_id
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.text.brief import first_line

CONFIG: Final = "config.json"
ADAPTER_CONFIG: Final = "adapter_config.json"
GENERATION: Final = "generation_config.json"
TOKENIZER: Final = "tokenizer.json"
TOKENIZER_CONFIG: Final = "tokenizer_config.json"
TOKENIZERS: Final = ((TOKENIZER,), ("tokenizer.model",), ("vocab.json", "merges.txt"))
"""Files of a tokenizer; transformers converts the others into the first."""


_OF_TOKENIZERS: Final = re.compile("token|vocab|merges|spiece|sentencepiece|tekken")
"""In the name of a file of a tokenizer, in any form that transformers reads."""


class WeightFormat(NamedTuple):
    """A format of weights, with the names that transformers gives its files."""

    listing: str
    single: str


FORMATS: Final = (
    WeightFormat("model.safetensors.index.json", "model.safetensors"),
    WeightFormat("pytorch_model.bin.index.json", "pytorch_model.bin"),
)
"""The trainer reads the first whose files are there."""

WEIGHT_NAMES: Final = tuple(name for one in FORMATS for name in one)
"""File names by which weights are found, the better format first."""


def refuse_directory(directory: Path, path: str) -> None:
    """Raise, with what to do, if a directory is not a model that the trainer can use.

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
    refuse_unknown(read_object(directory / CONFIG, place), place)


def lacking_tokenizer(names: Collection[str], path: object) -> RecipeError | None:
    """Return an error if a model has no tokenizer; ``None`` if it has one.

    Args:
        names: of its files.
        path: as the recipe has it.
    """
    if tokenizer_files(names):
        return None
    kinds = " nor ".join(" with ".join(one) for one in TOKENIZERS)
    cause = f"model.path = {path}: no tokenizer: neither {kinds}"
    return RecipeError(cause, fix="copy the tokenizer there that the model was trained with")


def has_tokenizer(names: Iterable[str]) -> bool:
    """Whether one of these files belongs to a tokenizer of any form."""
    return any(_OF_TOKENIZERS.search(one) for one in names)


def tokenizer_files(names: Collection[str]) -> tuple[str, ...]:
    """Return the files that transformers makes a tokenizer of; empty if there are none."""
    return next((one for one in TOKENIZERS if all(name in names for name in one)), ())


def lacking_weights(directory: Path, path: str) -> RecipeError | None:
    """Return what is missing of a directory's weights; ``None`` if one format is complete.

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
    """Return the file of each tensor, according to an index.

    Raises:
        RecipeError: it cannot be read, or names a file elsewhere.
    """
    index = read_object(listing)
    files = index.get("weight_map")
    if not isinstance(files, dict) or not isinstance(index.get("metadata", {}), dict):
        raise unreadable(listing, "it is not an index of weights")
    found = {name: str(file) for name, file in files.items()}
    if strange := [one for one in found.values() if one != PurePath(one).name or "\0" in one]:
        why = f"it names {strange[0]!r}, which is not in its directory"
        raise unreadable(listing, why, fix="copy the model again, or do not use it")
    return found


def read_object(file: Path, place: object = None) -> dict[str, Any]:
    """Read a model's JSON file, which must hold an object.

    Args:
        place: of the model, for the message; by default the file's folder.

    Raises:
        RecipeError: it cannot be read.
    """
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise unreadable(file, error, place) from None
    if not isinstance(found, dict):
        raise unreadable(file, "it does not hold a JSON object", place)
    return found


def read_generation(directory: Path) -> dict[str, Any]:
    """Read a model's generation settings; empty if it has no file of them.

    Raises:
        RecipeError: they cannot be read.
    """
    file = directory / GENERATION
    settings = read_object(file) if file.is_file() else {}
    if not all(isinstance(one, int) for one in listed_ends(settings.get("eos_token_id"))):
        raise unreadable(file, f"eos_token_id = {settings['eos_token_id']} is not a token id")
    return settings


def listed_ends(eos_token_id: Any) -> list[Any]:
    """Normalize end-of-text ids, which may be one id, several or none, to a list."""
    if eos_token_id is None:
        return []
    return eos_token_id if isinstance(eos_token_id, list) else [eos_token_id]


def unreadable(
    file: Path, why: BaseException | str, place: object = None, *, fix: str | None = None
) -> RecipeError:
    """Return the error for a file of a model that cannot be read.

    Args:
        place: of the model; by default the file's folder.
        fix: if another copy of it would not help.
    """
    reason = why if isinstance(why, str) else first_line(why)
    usual = "copy the file again"
    cause = f"{place or file.parent}: cannot read {file.name}: {reason}"
    return RecipeError(cause, fix=fix or usual)


def _lacks(directory: Path, place: str) -> Iterator[RecipeError | None]:
    """Yield what is missing of each format that the directory has files of; ``None`` if nothing."""
    for listing, single in FORMATS:
        if (directory / listing).is_file():
            files = sorted(set(listed_files(directory / listing).values()))
            lost = [one for one in files if not (directory / one).is_file()]
            cause = f"{place}: {len(lost)} of {len(files)} files that {listing} lists are missing"
            yield (
                RecipeError(cause, fix=f"download the model again, with {lost[0]}")
                if lost
                else None
            )
        if (directory / single).is_file():
            yield None


def _refuse(cause: str, fix: str) -> NoReturn:
    raise RecipeError(cause, fix=fix)
