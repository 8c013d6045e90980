"""Tab completion of verbs, options, nodes, interfaces, jobs and files.

Reads the parser and what open clusters already know. Never waits for the network: that would
freeze the page.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from jupyter_mntrain.command_line.parser import Completion, Parser
from jupyter_mntrain.model.records.job import TERMINAL
from jupyter_mntrain.model.text.foreign import is_safe
from jupyter_mntrain.model.tunables import all_tunables
from jupyter_mntrain.model.whereabouts import current_folder, in_home
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.show.bundles import PROGRAM
from jupyter_mntrain.verbs.command import top_parser, verb_parser
from jupyter_mntrain.verbs.context import Clusters
from jupyter_mntrain.verbs.table import TABLE
from jupyter_mntrain.verbs.verb import Verb


class Completer:
    """Completes a line that begins with ``%mntrain``."""

    def __init__(self, clusters: Clusters, directory: Callable[[], Path] = current_folder) -> None:
        self._clusters = clusters
        self._directory = directory

    def complete(self, line: str) -> tuple[str, list[str]]:
        """The word at the cursor and its completions.

        Args:
            line: from after the magic's name up to the cursor.
        """
        words = line.split()
        begun = "" if not words or line[-1].isspace() else words.pop()
        parser, before, choices = self._parser(words)
        if parser is None:
            return begun, []
        option = before[-1] if before else ""
        if begun.startswith("--") and "=" in begun:
            option, _, value = begun.partition("=")
            return value, self._matching(parser.value_options.get(option), value)
        if option in parser.value_options:
            return begun, self._matching(parser.value_options[option], begun)
        if begun.startswith("-"):
            return begun, _starting(begun, [*parser.flags, *parser.value_options])
        if choices:
            return begun, _starting(begun, choices)
        return begun, self._matching(_positional(parser, before), begun)

    def _parser(self, words: list[str]) -> tuple[Parser | None, list[str], Mapping[str, Verb]]:
        """The parser for the next word, the words it has parsed, and the verbs it offers."""
        choices: Mapping[str, Verb] = TABLE
        parser, program = top_parser(PROGRAM), PROGRAM
        while True:
            at = _first_positional(parser, words)
            if at >= len(words) or not choices:
                return parser, words, choices
            verb = choices.get(words[at])
            if verb is None:
                return None, [], {}
            words, choices = words[at + 1 :], verb.actions
            parser, program = verb_parser(verb, program, words), f"{program} {verb.name}"

    def _matching(self, kind: Completion | None, begun: str) -> list[str]:
        if kind is None:
            return []
        known: dict[Completion, Callable[[str], Iterable[str]]] = {
            "address": lambda _: (node.address for node in self._nodes()),
            "cluster": lambda _: (cluster.name for cluster in self._clusters.opened()),
            "file": lambda text: _paths(self._directory(), text),
            "recipe": self._launchable,
            "job": lambda _: (job.job_id for job in self._jobs()),
            "running-job": lambda _: (j.job_id for j in self._jobs() if j.state not in TERMINAL),
            "member": self._members,
            "node": lambda _: (node.name for node in self._nodes()),
            "field": lambda _: _recipe_fields(),
            "setting": lambda _: (setting.key for setting in all_tunables()),
        }
        return _starting(begun, known[kind](begun), ordered=kind in ("job", "running-job"))

    def _nodes(self) -> Iterator[Any]:
        return chain.from_iterable(cluster.nodes() for cluster in self._clusters.opened())

    def _jobs(self) -> Iterator[Any]:
        return chain.from_iterable(cluster.known_jobs() for cluster in self._clusters.opened())

    def _launchable(self, begun: str) -> Iterator[str]:
        """Files; also jobs to launch again, once a character is typed."""
        yield from _paths(self._directory(), begun, (".toml", ".py"))
        if begun:
            yield from (job.job_id for job in self._jobs())

    def _members(self, begun: str) -> Iterator[str]:
        """``HOST:N:IFACE``, one part at a time."""
        for node in self._nodes():
            if node.info is None:
                continue
            inventory = node.info.inventory
            most = len(inventory.gpus) or 1
            if begun.count(":") < 2:
                yield from (f"{node.name}:{number}" for number in range(most, 0, -1))
                if most > 1:
                    yield from (f"{node.name}:gpu{gpu.index}" for gpu in inventory.gpus)
                continue
            count = begun.split(":")[1]
            for interface in inventory.interfaces:
                if interface.is_up and interface.addresses:
                    yield f"{node.name}:{count}:{interface.name}"


def _first_positional(parser: Parser, words: list[str]) -> int:
    """Index of the first positional argument."""
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in parser.value_options else 1
    return at


def _positional(parser: Parser, before: list[str]) -> Completion | None:
    """Kind of the next positional argument."""
    given = 0
    for previous, word in zip(["", *before], before, strict=False):
        given += not word.startswith("-") and previous not in parser.value_options
    kinds = parser.positionals
    return kinds[min(given, len(kinds) - 1)] if kinds else None


def _recipe_fields() -> Iterator[str]:
    for section in msgspec.structs.fields(Recipe):
        for field in msgspec.structs.fields(section.type):
            yield f"{section.name}.{field.name}="


def _starting(begun: str, known: Iterable[str], *, ordered: bool = False) -> list[str]:
    # Nothing is put into a cell that looks different there, or ends its line.
    matches = dict.fromkeys(word for word in known if word.startswith(begun) and is_safe(word))
    return list(matches) if ordered else sorted(matches)


def _paths(directory: Path, begun: str, endings: tuple[str, ...] = ()) -> Iterator[str]:
    head = begun[: begun.rfind("/") + 1]
    try:
        entries = list(os.scandir(directory / in_home(head) if head else directory))
    except OSError:
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            yield f"{head}{entry.name}/"
        elif not endings or entry.name.endswith(endings):
            yield f"{head}{entry.name}"
