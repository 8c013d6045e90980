"""Verb: base class of all verbs, and the outcome that they return."""

from __future__ import annotations

from abc import ABC, abstractmethod
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from rich.console import RenderableType

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.verbs.context import Context

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Job


class Outcome(Record, frozen=True):
    """The result of a verb, for people and for programs.

    Args:
        renderable: for people.
        data: for programs, convertible to JSON; ``--json`` prints it.
        exit_code: of the command line: 0 done, 1 the job failed or was canceled, 130 detached
            by Ctrl-C, 124 not over after ``--timeout``; errors carry their own.
        job: the job concerned, if there is one.
        path: of what it brought here; a notebook's ``%mntrain`` returns it.
        picture: a PNG to show, below what is said.
        picture_text: instead of it, where no pictures are shown.
    """

    renderable: RenderableType = ""
    data: Any = None
    exit_code: int = 0
    job: Job | None = None
    path: Path | None = None
    picture: bytes | None = None
    picture_text: str = ""


class Verb(ABC):
    """A command, for both the magic and the command line."""

    name: str
    help: str
    """One line, without a full stop. Those of a verb are in the table of verbs, as ``name`` is;
    its actions have their own."""

    takes_cell: ClassVar[bool] = False
    """Whether ``%%mntrain VERB`` accepts a cell."""

    takes_arguments: ClassVar[bool] = False
    """Whether it passes the words after ``--`` to a script. With a cell it always does."""

    uses_cluster: ClassVar[bool] = True
    """Whether it takes ``--cluster`` and ``--agent``."""

    shows_cluster: ClassVar[bool] = False
    """Whether it shows a cluster as a whole: for who has none but of allocations, the newest."""

    terminal_only: ClassVar[str] = ""
    """Why it cannot run in a notebook; empty if it can."""

    usage: ClassVar[str] = ""
    """The command to type in a terminal instead."""

    explains: ClassVar[Sequence[str]] = ()
    """Figures that it shows, by their words in ``figures.toml``: its help says what they are."""

    actions: ClassVar[Mapping[str, Verb]] = {}
    """The verbs of a group, by name; empty for a verb that runs itself."""

    def add_arguments(self, parser: Parser) -> None:  # noqa: B027 - some take nothing
        """Add this verb's arguments; the common options are added elsewhere."""

    def add_chosen_arguments(self, parser: Parser, words: Sequence[str]) -> None:  # noqa: B027 - few
        """Add arguments that only some of the verb's commands take.

        Args:
            words: of the command, as far as they are known.
        """

    @abstractmethod
    def run(self, context: Context, args: Namespace) -> Outcome:
        """Run the verb.

        Raises:
            MntrainError: it failed; nothing is left half done.
        """


class VerbGroup(Verb):
    """Several verbs under one name: ``mntrain NAME ACTION``."""

    def run(self, context: Context, args: Namespace) -> NoReturn:  # noqa: ARG002 - never called
        raise AssertionError(f"{self.name} needs one of its actions")
