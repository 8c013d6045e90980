"""What a verb is: a name, its options, and one function from a context to an outcome."""

from __future__ import annotations

import argparse
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from jupyter_mntrain.cluster import Cluster, Job


@dataclass(frozen=True)
class Context:
    """Where a verb runs.

    Args:
        cluster: what is watched; already connecting.
        directory: relative paths start here.
        cell: body of a ``%%mntrain`` cell.
        user: who asks, for the agents' records.
        show: puts something on the screen before the verb is done (progress, followed logs).
    """

    cluster: Cluster
    directory: Path
    user: str
    show: Callable[[Any], None]
    cell: str | None = None


@dataclass(frozen=True)
class Outcome:
    """What a verb has to say.

    Args:
        data: for ``--json``; plain lists, dicts, numbers and text.
        view: for people; anything rich can print.
        exit_code: 0 only if what was asked for is so.
        job: the job it is about: a notebook shows it live.
        wait: stay until the job ends.
    """

    data: Any
    view: Any
    exit_code: int = 0
    job: Job | None = None
    wait: bool = False


class Verb(ABC):
    """One verb. ``names_nodes`` are the nodes a run will need: the caller waits for them."""

    name: ClassVar[str]
    help: ClassVar[str]

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare options; the default verb has none."""

    def nodes_wanted(self, arguments: argparse.Namespace) -> Sequence[str]:
        """Names of nodes that must be found before :meth:`run`, as far as is known."""
        return ()

    @abstractmethod
    def run(self, context: Context, arguments: argparse.Namespace) -> Outcome:
        """Do it.

        Raises:
            MntrainError: bad input or a refusal, in one line; nothing was left half-done.
        """
