"""Own tokenizer: that of a Hugging Face directory, in the forms that transformers converts.

``tokenizer.json`` is read as it is. ``tokenizer.model`` (SentencePiece's) and
``vocab.json`` with ``merges.txt`` are converted into it. What is lost of these is not noticed by
those who convert them: they would give other ids.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.text.brief import some_of
from jupyter_mntrain.recipe.families.directories import (
    CONFIG,
    TOKENIZER,
    TOKENIZER_CONFIG,
    TOKENIZERS,
    read_object,
    tokenizer_files,
    unreadable,
)
from jupyter_mntrain.train.data.chat import read_template, refuse_broken

SENTENCEPIECE, (VOCABULARY, MERGES) = TOKENIZERS[1][0], TOKENIZERS[2]
TEMPLATE: Final = "chat_template.jinja"

_BESIDE: Final = (*(CONFIG, TOKENIZER_CONFIG, "special_tokens_map.json", "added_tokens.json"),)
"""What transformers reads besides."""


def read_tokenizer(directory: Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a directory, in any form that transformers reads; none of its code is run.

    Raises:
        RecipeError: it cannot be read, or needs a library to be converted.
    """
    files = tokenizer_files([one.name for one in directory.iterdir()])
    objects = [one for one in (*_BESIDE, *files) if one.endswith(".json")]
    # transformers' own words name no file
    read = {one: read_object(directory / one) for one in objects if (directory / one).is_file()}
    if (directory / TEMPLATE).is_file():
        read_template(directory / TEMPLATE)
    if files == (TOKENIZER,):
        _refuse_apart(directory / TOKENIZER, read[TOKENIZER])
    if files == (SENTENCEPIECE,):
        _check_pieces(directory / SENTENCEPIECE)
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            directory, local_files_only=True, trust_remote_code=False
        )
        tokenizer("a")  # a setting may be wrong that is only used now
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of the library's Rust is no Exception
        named = [one for one in (*files, TOKENIZER_CONFIG) if (directory / one).is_file()]
        names = " and ".join(named or ["its tokenizer"])
        fix = f"copy {names} again"
        if "auto_map" in read.get(TOKENIZER_CONFIG, {}):
            fix = f"its own code, which it needs, is not run: have transformers write {TOKENIZER}"
        raise unreadable(directory / names, error, fix=fix) from error
    _refuse_torn(directory, files, tokenizer)
    if isinstance(tokenizer.chat_template, str) and not (directory / TEMPLATE).is_file():
        refuse_broken(tokenizer.chat_template, directory / TOKENIZER_CONFIG)
    return tokenizer


def _refuse_apart(file: Path, given: Mapping[str, Any]) -> None:
    """Refuse merges without the prefix that the library takes off: it ends the process where
    half a character is left.
    """
    model = given.get("model")
    made: dict[str, Any] = model if isinstance(model, dict) else {}
    prefix, merges = made.get("continuing_subword_prefix"), made.get("merges")
    if not (prefix and isinstance(prefix, str) and isinstance(merges, list)):
        return
    for merge in merges:
        parts = merge.split(" ") if isinstance(merge, str) else merge
        if not (isinstance(parts, list) and parts and str(parts[-1]).startswith(prefix)):
            why = f"its continuing_subword_prefix is not in the merge {merge}"
            raise unreadable(file, why)


def _refuse_torn(
    directory: Path, files: tuple[str, ...], tokenizer: PreTrainedTokenizerBase
) -> None:
    """Refuse what is read without a complaint, and would give other ids."""
    ids = tokenizer.get_vocab()
    if len(set(ids.values())) < len(ids):
        number, _ = Counter(ids.values()).most_common(1)[0]
        alike = [repr(one) for one, its in ids.items() if its == number]
        raise unreadable(directory / files[0], f"{some_of(alike)} have the same id {number}")
    if files == TOKENIZERS[2]:
        _refuse_unmade(directory / MERGES, tokenizer)


def _refuse_unmade(file: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    """Refuse merges that do not make all tokens: the file was cut, or another's."""
    model: dict[str, Any] = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    made = {"".join(one.split(" ") if isinstance(one, str) else one) for one in model["merges"]}
    added = tokenizer.get_added_vocab()
    unmade = [
        one for one in model["vocab"] if len(one) > 1 and one not in made and one not in added
    ]
    if unmade:
        why = f"it makes no {some_of(unmade)} of {VOCABULARY}"
        fix = "copy both files again, or have transformers write a tokenizer.json"
        raise unreadable(file, why, fix=fix)


def _check_pieces(file: Path) -> None:
    """Refuse a SentencePiece model of which a part is lost; pieces are read until it ends."""
    if lacking := [one for one in ("sentencepiece", "google.protobuf") if not _is_there(one)]:
        raise RecipeError(
            f"{file.parent}: {lacking[0]}, which converts {file.name}, is not installed here",
            kind=Kind.MISSING_LIBRARY,
            fix="pip install 'jupyter-mntrain[sentencepiece]' on every node; or have transformers "
            "write a tokenizer.json elsewhere",
        )
    from google.protobuf.message import DecodeError
    from google.protobuf.unknown_fields import UnknownFieldSet
    from sentencepiece import sentencepiece_model_pb2

    model = sentencepiece_model_pb2.ModelProto()
    try:
        model.ParseFromString(file.read_bytes())
    except DecodeError:
        fix = "copy the file again; or, if it is none, have transformers write a tokenizer.json"
        raise unreadable(file, "it is no SentencePiece model", fix=fix) from None
    pieces = [one.piece for one in model.pieces]
    is_whole = model.HasField("trainer_spec") and model.HasField("normalizer_spec")
    if not (pieces and is_whole) or len(UnknownFieldSet(model)) or len({*pieces}) < len(pieces):
        raise unreadable(file, "a part of it is lost")


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # its parent
        return False
