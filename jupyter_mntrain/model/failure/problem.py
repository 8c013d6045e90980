"""Problem as data: created where it is detected, and rendered only where it is shown."""

from __future__ import annotations

import re

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.failure.kinds import SYMPTOMS, Kind
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.text.foreign import shown_line, shown_name

_NUMBER = re.compile(r"0x[0-9a-f]+|\d+")


class Problem(Record, frozen=True):
    """A problem: what is wrong, where, and what to do about it.

    ``cause`` and ``fix`` are for people, without a full stop, and name neither the node nor the
    rank that the fields name. Code decides by ``kind``. The fields may hold foreign text; what the
    properties return is safe to show.

    Args:
        fix: what to do next; empty if unknown.
        node: display name of the node concerned.
        rank: the rank concerned.
        step: the optimizer step concerned, from 1.
        detail: the evidence: a traceback, or the last lines of a log.
        time_s: Unix time at which it happened or began, if known.
        seen_s: Unix time at which the evidence was taken, of what may change while it lasts.
        id: of an unexpected error: the agent's log has its traceback under it.
    """

    kind: Kind
    cause: str
    fix: str = ""
    node: str | None = None
    rank: Rank | None = None
    step: int | None = None
    detail: str = ""
    time_s: float | None = None
    seen_s: float | None = None
    id: str = ""

    @property
    def is_symptom(self) -> bool:
        """Whether another rank is to blame."""
        return self.kind in SYMPTOMS

    def is_alike(self, other: Problem) -> bool:
        """Whether both are equal except for numbers, as for ranks that fail in the same line."""
        told, known = (_NUMBER.sub("#", one.cause) for one in (self, other))
        return self.kind is other.kind and told == known

    @property
    def place(self) -> str:
        """Node and rank, like ``node2: rank 1``; empty without both."""
        rank = None if self.rank is None else f"rank {self.rank}"
        node = shown_name(self.node or "")
        return ": ".join(part for part in (node, rank) if part)

    @property
    def headline(self) -> str:
        """Place and cause, as a sentence."""
        cause = shown_line(self.cause)
        told = f"{self.place}: {cause}" if self.place else cause
        return told if told.endswith((".", "!", "?")) else f"{told}."

    @property
    def fix_line(self) -> str:
        """The fix, as a sentence; empty if there is none."""
        return f"Fix: {shown_line(self.fix)}." if self.fix else ""

    def __str__(self) -> str:
        """One line for logs, tracebacks and pictures, like ``node: cause. Fix: fix``."""
        return f"{self.headline} {self.fix_line}".rstrip()
