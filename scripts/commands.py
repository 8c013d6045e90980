"""Commands: writes what completion reads, made of the parsers.

python -m scripts.commands [--check]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.model.tunables import all_tunables
from jupyter_mntrain.recipe.builtin import BUILT_IN
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.sources.registry import sources
from jupyter_mntrain.verbs.command import top_parser, verb_parser
from jupyter_mntrain.verbs.completion import FILE
from jupyter_mntrain.verbs.table import TABLE
from jupyter_mntrain.verbs.verb import Verb


def text() -> str:
    """The content of the file."""
    data = {
        "mntrain": taken(top_parser("mntrain"), TABLE),
        "recipes": [one.name for one in BUILT_IN],
        "fields": list(fields()),
        "settings": [one.key for one in all_tunables()],
    }
    return json.dumps(data, indent=1) + "\n"


def taken(parser: Parser, choices: Mapping[str, Verb]) -> dict[str, Any]:
    """What a command takes."""
    return {
        "flags": sorted(parser.flags),
        "values": parser.value_options,
        "positionals": parser.positionals,
        "choices": {name: {"help": verb.help} | of_verb(verb) for name, verb in choices.items()},
    }


def of_verb(verb: Verb) -> dict[str, Any]:
    """What a verb takes, and with which scheduler what else."""
    found = taken(verb_parser(verb, "mntrain"), verb.actions)
    if type(verb).add_chosen_arguments is not Verb.add_chosen_arguments:
        found["chosen"] = {
            source: taken(verb_parser(verb, "mntrain", ("--on", source)), {})
            for source in sources()
        }
    return found


def fields() -> Iterator[str]:
    """The fields of a recipe, as they are typed."""
    for section in msgspec.structs.fields(Recipe):
        for field in msgspec.structs.fields(section.type):
            yield f"{section.name}.{field.name}="


def main() -> int:
    if "--check" not in sys.argv[1:]:
        FILE.write_text(text())
        return 0
    if FILE.read_text() == text():
        return 0
    sys.stderr.write(f"{FILE.name} is outdated. Fix: python -m scripts.commands\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
