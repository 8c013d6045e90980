"""Options that a source declares, and the values that a person gives for them.

Command line, panel and page draw the options from these records: no word of a scheduler stands
outside of its own room.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import SpecError, shortened
from jupyter_mntrain.model.text.spelling import use_nearest

OptionKind = Literal["text", "lines", "choice"]
"""``lines``: any number of values, in their order. ``choice``: one of the option's choices."""

Values = dict[str, tuple[str, ...]]
"""Values by name of the option; most have one."""


class SourceOption(Record, frozen=True):
    """One option of a source.

    Args:
        name: ``partition`` for ``--partition``.
        help: what it is for, without a full stop.
        example: a value, as it is written.
    """

    name: str
    help: str
    kind: OptionKind = "text"
    example: str = ""
    choices: tuple[str, ...] = ()

    @property
    def flag(self) -> str:
        return f"--{self.name}"


def checked_values(
    source: str, options: Sequence[SourceOption], given: Mapping[str, Iterable[str]]
) -> Values:
    """Check and convert the values of options; options without a value are left out.

    Raises:
        SpecError: the source has no such option, or not such a value of it.
    """
    by_name = {option.name: option for option in options}
    values: Values = {}
    for name, texts in given.items():
        if name not in by_name:
            fix = use_nearest(name, by_name, f"use one of {', '.join(by_name)}")
            raise SpecError(f"{source} has no option {shortened(name)!r}", fix=fix)
        if told := tuple(text for text in texts if text.strip()):
            _check(by_name[name], told)
            values[name] = told
    return values


def _check(option: SourceOption, values: Sequence[str]) -> None:
    if option.kind != "lines" and len(values) > 1:
        raise SpecError(f"{option.flag} is given {len(values)} times", fix="give it once")
    for value in values:
        if not value.isprintable():
            cause = f"{option.flag}: {shortened(value)!r} has a character that cannot be printed"
            raise SpecError(cause, fix="write it on one line, without such characters")
        if option.kind == "choice" and value not in option.choices:
            fix = f"use one of {', '.join(option.choices)}"
            raise SpecError(f"{option.flag}: there is no {shortened(value)!r}", fix=fix)
