"""Source fields: the options of a source of nodes, as the source declares them. Pure."""

from __future__ import annotations

from argparse import Namespace

import msgspec

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.sources.source import SourceOption, checked_values
from jupyter_mntrain.sources.registry import options_of, title_of
from jupyter_mntrain.verbs.launching.allocations.on_options import (
    ON,
    chosen_options,
    common_options,
    on_option,
)
from jupyter_mntrain.verbs.panel.choices import Choices


class SourceField(Record, frozen=True):
    """One option of the chosen source.

    Args:
        text: as typed; empty = as without the option.
        problem: why that text cannot be used.
    """

    option: SourceOption
    text: str = ""
    problem: Problem | None = None


def source_fields(choices: Choices) -> tuple[SourceField, ...]:
    """Return the fields of the chosen source; none for the cluster's own nodes."""
    if not choices.on:
        return ()
    options = (*common_options(choices.on), *options_of(choices.on))
    texts = {one.name: choices.on_values.get(one.name, "") for one in options}
    return tuple(
        SourceField(one, texts[one.name], _problem(choices.on, one, texts[one.name]))
        for one in options
    )


def with_source(choices: Choices, source: str) -> Choices:
    """Return the choices with another source, whose options are not set yet."""
    if source == choices.on:
        return choices
    return msgspec.structs.replace(choices, on=source, on_values={})


def with_value(choices: Choices, name: str, text: str) -> Choices:
    """Return the choices with a new value for an option of the source."""
    others = {one: value for one, value in choices.on_values.items() if one != name}
    given = {name: text.strip()} if text.strip() else {}
    return msgspec.structs.replace(choices, on_values=others | given)


def _problem(source: str, option: SourceOption, text: str) -> Problem | None:
    """Return what is wrong with one value on its own."""
    if not text:
        return None
    words = [f"{option.flag}={line}" for line in text.splitlines()]
    parser = Parser("launch")
    on_option(parser)
    chosen_options(parser, [ON, source])
    try:
        parser.parse([ON, source, *words], Namespace())
        if option in (declared := options_of(source)):
            checked_values(title_of(source), declared, {option.name: text.splitlines()})
    except MntrainError as error:
        return error.problem
    return None
