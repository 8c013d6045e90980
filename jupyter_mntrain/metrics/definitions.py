"""Definitions: what each figure of a job is, from ``figures.toml`` next to this file."""

from __future__ import annotations

import textwrap
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files

import msgspec

from jupyter_mntrain.model._record import UserRecord


class Definition(UserRecord, frozen=True):
    """The definition of one figure.

    Args:
        fields: its names in JSON.
        over: which steps, or which time.
        clock: whose.
        meaning: what is counted, in a sentence; Markdown.
    """

    fields: tuple[str, ...]
    unit: str
    over: str
    clock: str
    meaning: str


@cache
def definitions() -> dict[str, Definition]:
    """Return all definitions by the name that people read."""
    text = (files("jupyter_mntrain.metrics") / "figures.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), dict[str, Definition])


def meaning_of(field: str) -> str:
    """Return the meaning of a figure, by its name in JSON, as one line of plain text."""
    return _plain(next(one for one in definitions().values() if field in one.fields))


def told_figures(words: Iterable[str], columns: int) -> Iterator[str]:
    """Yield the definitions of these figures as lines of plain text.

    Args:
        columns: that a line has at most.
    """
    for word in words:
        text = f"{word}: {_plain(definitions()[word])}"
        yield from textwrap.wrap(text, columns, initial_indent="  ", subsequent_indent="    ")


def _plain(one: Definition) -> str:
    return one.meaning.replace("`", "").replace("*", "")
