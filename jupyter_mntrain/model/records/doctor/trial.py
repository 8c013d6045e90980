"""Trial records: the results of a job that was started only to see whether it works."""

from __future__ import annotations

import msgspec

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.failure.problem import Problem

LINE_MARK = "mntrain doctor: "
"""A rank that reached its end prints a :class:`TriedRank` after it, as a line of the job's log."""


class TriedRank(Record, frozen=True):
    """A rank that has made its first step or, for a script, its first collective.

    Args:
        seconds: of its first step, or of its first collective.
        peak_bytes: most memory that it took, of its GPU, or of the machine beyond what torch takes
            by itself; ``None`` of a script.
    """

    rank: int
    seconds: float
    peak_bytes: int | None = None


class TriedNode(Record, frozen=True):
    """A node of such a job.

    Args:
        node: its name.
        ranks: on it.
        planned_bytes: of memory, for each of these ranks; empty if there is no plan.
        problem: why its ranks failed.
    """

    node: str
    ranks: tuple[int, ...]
    planned_bytes: tuple[float, ...] = ()
    problem: Problem | None = None


class JobTrial(Record, frozen=True):
    """The results of a job that was started only to see whether it works.

    Args:
        is_recipe: its ranks made a step; those of a script only met, and imported modules.
        nodes: that took part, or would have.
        ranks: those that reached the end.
        untold: why it is not known whether it works, with what to do about it; ``None`` if it is.
    """

    is_recipe: bool
    nodes: tuple[TriedNode, ...]
    ranks: tuple[TriedRank, ...] = ()
    untold: Problem | None = None


_decoder = msgspec.json.Decoder(TriedRank)


def written_line(one: TriedRank) -> str:
    """Encode a line as the rank prints it."""
    return LINE_MARK + msgspec.json.encode(one).decode()


def read_line(text: str) -> TriedRank | None:
    """Parse a line of the job's log; ``None`` if it is not of this kind, or damaged."""
    _, mark, content = text.partition(LINE_MARK)
    try:
        return _decoder.decode(content) if mark else None
    except msgspec.DecodeError:
        return None
