"""Request for nodes, as every source accepts it, and the command to run on each node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated

from msgspec import Meta

from jupyter_mntrain.model._record import UserRecord
from jupyter_mntrain.model.sources.options import Values


class NodesRequest(UserRecord, frozen=True):
    """A request for nodes with resources for some time. All are granted together, or none.

    Args:
        source: name of the source.
        nodes: each is one slot.
        gpus: per node, in the form that the source takes: a number, or with a type; empty = none.
        time_s: longest time for which they are wanted; ``None`` = as long as the source gives.
        name: what the scheduler's lists show.
        options: of the source, as it declares them.
    """

    source: str
    nodes: Annotated[int, Meta(ge=1)]
    gpus: str = ""
    time_s: Annotated[float, Meta(gt=0)] | None = None
    name: str = "mntrain"
    options: Values = {}

    def option(self, name: str) -> str:
        """Return the value of an option that takes one; empty if it has none."""
        return " ".join(self.options.get(name, ()))

    @property
    def slots(self) -> tuple[str, ...]:
        return tuple(slot_name(self.source, index) for index in range(self.nodes))


SLOT, SECRETS, STATE, PYTHON = "{slot}", "{secrets}", "{state}", "{python}"
"""Stand in a slot's command for its name, the folder of its secrets, that of its state, and the
interpreter that has this package there."""


class SlotCommand(UserRecord, frozen=True):
    """The command that starts an agent in every slot. Its words hold :data:`SLOT` and the like.

    Args:
        words: the program and its arguments.
        secrets: files that only this user can read, by name: tokens. The source gives them to
            every slot, never by the command line or the environment, and removes them at the end.
        environment: variables of it; nothing secret.
    """

    words: tuple[str, ...]
    secrets: dict[str, str] = {}
    environment: dict[str, str] = {}

    def filled(
        self, facts: Mapping[str, str], quoted: Callable[[str], str] = str
    ) -> tuple[str, ...]:
        """Return the words, with :data:`SLOT` and the like replaced.

        Args:
            quoted: applied to everything else: what a shell must not read as its own.
        """
        return tuple(_filled(word, facts, quoted) or quoted("") for word in self.words)


def slot_name(source: str, index: int) -> str:
    """Return a slot's name, like ``slurm-0``, which names its node in the cluster."""
    return f"{source}-{index}"


def _filled(word: str, facts: Mapping[str, str], quoted: Callable[[str], str]) -> str:
    for mark, value in facts.items():
        before, found, after = word.partition(mark)
        if found:
            return _filled(before, facts, quoted) + value + _filled(after, facts, quoted)
    return quoted(word) if word else ""
