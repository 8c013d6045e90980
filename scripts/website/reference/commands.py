"""Commands: every verb with its help, as magic and command line print it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from jupyter_mntrain.sources.registry import SOURCES
from jupyter_mntrain.verbs.command import verb_parser
from jupyter_mntrain.verbs.table import TABLE
from jupyter_mntrain.verbs.verb import Verb

COLUMNS = "80"


def page() -> str:
    # argparse has no other way to say them.
    os.environ.update(COLUMNS=COLUMNS, NO_COLOR="1")
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
        for source in SOURCES:
            yield f"{level}# {verb.name} --on {source}"
            yield ""
            yield from _help(verb, program, ("--on", source))


def _help(verb: Verb, program: str, words: Sequence[str] = ()) -> Iterator[str]:
    yield from ("```text", verb_parser(verb, program, words).format_help().rstrip(), "```", "")
