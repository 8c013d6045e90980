"""Answers of verbs, compared with the published schema: what is not in it is an error, too."""

from __future__ import annotations

import functools
import json
from typing import Any

import msgspec
from jsonschema import Draft202012Validator

from jupyter_mntrain.verbs.table import TABLE
from jupyter_mntrain.verbs.verb import Verb
from scripts.output_schema import FILE


def check_answer(verb: Verb, data: Any) -> None:
    """Fail where data of a verb is not what the schema says of its command."""
    if data is None:
        return
    errors = [*_validator(command_of(verb)).iter_errors(json.loads(msgspec.json.encode(data)))]
    told = [f"{one.json_path}: {one.message[:300]}" for error in errors for one in _deepest(error)]
    assert not told, f"{command_of(verb)}: {told}"


def command_of(verb: Verb) -> str:
    """The words by which it is called."""
    for group in TABLE.values():
        if verb in group.actions.values():
            return f"{group.name} {verb.name}"
    return verb.name


def _deepest(error: Any) -> list[Any]:
    return [one for each in error.context for one in _deepest(each)] if error.context else [error]


@functools.cache
def _validator(command: str) -> Draft202012Validator:
    schema = _strict()
    return Draft202012Validator({**schema["properties"][command], "$defs": schema["$defs"]})


@functools.cache
def _strict() -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(FILE.read_text())
    for one in schema["$defs"].values():
        if "properties" in one:
            one["additionalProperties"] = False
    return schema
