"""Completion: what can be typed at the cursor, for shells and notebooks alike.

What commands take is read from ``commands.json``, which ``python -m scripts.commands`` makes of the
parsers: to make them here would import what a verb needs, which takes longer than a person waits.
Names of nodes and jobs come from who is asked. Nothing waits for the network.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from jupyter_mntrain.command_line.parser import Values
from jupyter_mntrain.model.text.foreign import is_safe
from jupyter_mntrain.model.whereabouts import current_folder, in_home

FILE = Path(__file__).with_name("commands.json")


class KnownNode(NamedTuple):
    """What completion needs to know of a node."""

    name: str
    address: str
    gpus: tuple[int, ...] = ()
    interfaces: tuple[str, ...] = ()


class KnownJob(NamedTuple):
    """What completion needs to know of a job."""

    job_id: str
    has_ended: bool


class Known(Protocol):
    """The source of names; each method answers at once."""

    def clusters(self) -> Iterable[str]: ...
    def nodes(self) -> Iterable[KnownNode]: ...
    def jobs(self) -> Iterable[KnownJob]: ...


class Command:
    """The arguments that a command takes.

    Args:
        data: its part of ``commands.json``.
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.flags: list[str] = data["flags"]
        self.values: dict[str, Values] = data["values"]
        self.positionals: list[Values] = data["positionals"]
        self.choices: dict[str, dict[str, Any]] = data["choices"]
        """Its verbs or actions, each with its help and arguments."""
        self._chosen: dict[str, dict[str, Any]] = data.get("chosen", {})

    def of(self, words: Sequence[str]) -> Command:
        """Return what the command takes with these words, including a scheduler's options."""
        for at, word in enumerate(words):
            name, _, value = word.partition("=")
            if name == "--on" and self._chosen:
                value = value or next(iter(words[at + 1 :]), "")
                return Command(self._chosen[value]) if value in self._chosen else self
        return self


class Completer:
    """Completes the words after ``mntrain``.

    Args:
        directory: where paths begin.
    """

    def __init__(self, known: Known, directory: Callable[[], Path] = current_folder) -> None:
        self._known = known
        self._directory = directory

    def complete(self, words: Sequence[str], begun: str) -> list[str]:
        """Return the completions of the word at the cursor.

        Args:
            words: those before it.
            begun: the word, as far as it is typed.
        """
        return list(self.explained(words, begun))

    def explained(self, words: Sequence[str], begun: str) -> dict[str, str]:
        """Return the completions of the word at the cursor, with a line on each verb and action."""
        command, before = _at(list(words))
        if command is None:
            return {}
        option = before[-1] if before else ""
        name, equals, value = begun.partition("=")
        if equals and name in command.values:
            found = self._matching(command.values[name], value)
            return dict.fromkeys([f"{name}={one}" for one in found], "")
        if option in command.values:
            return dict.fromkeys(self._matching(command.values[option], begun), "")
        if begun.startswith("-"):
            return dict.fromkeys(_starting(begun, [*command.flags, *command.values]), "")
        if command.choices:
            helps = {name: one["help"] for name, one in command.choices.items()}
            return {name: helps[name] for name in _starting(begun, helps)}
        return dict.fromkeys(self._matching(_positional(command, before), begun), "")

    def _matching(self, kind: Values, begun: str) -> list[str]:
        if kind is None:
            return []
        known: dict[Values, Callable[[str], Iterable[str]]] = {
            "address": lambda _: (node.address for node in self._known.nodes()),
            "cluster": lambda _: self._known.clusters(),
            "file": lambda text: _paths(self._directory(), text),
            "recipe": self._launchable,
            "job": lambda _: (job.job_id for job in self._known.jobs()),
            "running-job": lambda _: (
                job.job_id for job in self._known.jobs() if not job.has_ended
            ),
            "member": self._members,
            "node": lambda _: (node.name for node in self._known.nodes()),
            "field": lambda _: commands()["fields"],
            "setting": lambda _: commands()["settings"],
        }
        found = known[kind](begun) if isinstance(kind, str) else kind
        return _starting(begun, found, ordered=kind in ("job", "running-job"))

    def _launchable(self, begun: str) -> Iterator[str]:
        """Yield files and, once a character is typed, also built-in recipes and jobs."""
        yield from _paths(self._directory(), begun, (".toml", ".py"))
        if begun:
            yield from commands()["recipes"]
            yield from (job.job_id for job in self._known.jobs())

    def _members(self, begun: str) -> Iterator[str]:
        """Complete ``HOST:N:IFACE``, one part at a time."""
        for node in self._known.nodes():
            most = len(node.gpus) or 1
            if begun.count(":") < 2:
                yield from (f"{node.name}:{number}" for number in range(most, 0, -1))
                if most > 1:
                    yield from (f"{node.name}:gpu{index}" for index in node.gpus)
                continue
            count = begun.split(":")[1]
            yield from (f"{node.name}:{count}:{name}" for name in node.interfaces)


@functools.cache
def commands() -> dict[str, Any]:
    """Return the content of ``commands.json``."""
    loaded: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return loaded


def _at(words: list[str]) -> tuple[Command | None, list[str]]:
    """Return the command that takes the next word, and the words it has so far."""
    command = Command(commands()["mntrain"])
    while True:
        at = _first_positional(command, words)
        if at >= len(words) or not command.choices:
            return command.of(words), words
        chosen = command.choices.get(words[at])
        if chosen is None:
            return None, []
        command, words = Command(chosen), words[at + 1 :]


def _first_positional(command: Command, words: list[str]) -> int:
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in command.values else 1
    return at


def _positional(command: Command, before: Sequence[str]) -> Values:
    """Return the values of the next positional argument."""
    given = 0
    for previous, word in zip(["", *before], before, strict=False):
        given += not word.startswith("-") and previous not in command.values
    kinds = command.positionals
    return kinds[min(given, len(kinds) - 1)] if kinds else None


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
