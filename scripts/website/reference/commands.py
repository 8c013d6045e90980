"""Commands: every verb with its help, as magic and command line print it."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

from jupyter_mntrain.sources.registry import sources
from jupyter_mntrain.verbs.command import verb_parser
from jupyter_mntrain.verbs.table import TABLE
from jupyter_mntrain.verbs.verb import Verb

COLUMNS = 72
"""That fit next to both sidebars, in a window of 1300 pixels."""


def page() -> str:
    lines = [
        "# All commands",
        "",
        (
            "Each is a command of a shell, `mntrain VERB`, and a magic, `%mntrain VERB`. "
            "[Commands](../commands.md) lists them in short, with exit codes and `--json`."
        ),
        "",
    ]
    for verb in TABLE.values():
        lines += _verb(verb, "mntrain", "##")
    return "\n".join(lines)


def _verb(verb: Verb, program: str, level: str) -> Iterator[str]:
    yield f"{level} {program.removeprefix('mntrain')} {verb.name}".replace("  ", " ")
    yield ""
    if verb.terminal_only:
        yield f"In a terminal only: {verb.terminal_only}."
        yield ""
    if verb.takes_cell:
        yield f"Also takes a cell: `%%{program} {verb.name}`."
        yield ""
    yield from _help(verb, program)
    for action in verb.actions.values():
        yield from _verb(action, f"{program} {verb.name}", f"{level}#")
    if type(verb).add_chosen_arguments is not Verb.add_chosen_arguments:
        for source in sources():
            yield f"{level}# {verb.name} --on {source}"
            yield ""
            yield from _help(verb, program, ("--on", source))


def _help(verb: Verb, program: str, words: Sequence[str] = ()) -> Iterator[str]:
    parser = verb_parser(verb, program, words)
    # Not those of the terminal in which the site is built; since Python 3.14 there are colors, too.
    formatter: Any = parser.formatter_class  # typeshed's knows no width
    parser.formatter_class = functools.partial(formatter, width=COLUMNS)
    parser.__dict__["color"] = False
    yield from ("```text", parser.format_help().rstrip(), "```", "")
