"""Stall: no rank of a part has made progress for too long, and what each rank is doing."""

from __future__ import annotations

from typing import Literal

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.failure.calls import GroupCalls
from jupyter_mntrain.model.failure.sites import Site
from jupyter_mntrain.model.ids import Rank

Doing = Literal["stopped", "in the kernel", "waiting for others", "busy", "not known"]
"""State of a rank that makes no progress: stopped by a signal or a frozen control group; in an
uninterruptible system call; in a collective or a receive; in its own code."""


class RankStack(Record, frozen=True):
    """The stacks of a rank when its part stalled.

    Args:
        where: innermost line of the script's own code in the main thread: ``load (data.py:12)``;
            of a rank that is stopped, the control group that is frozen, if that is why.
        site: place in torch.distributed where it waits, if it does.
        text: stacks of all its threads from faulthandler; empty if it did not answer.
        calls: its last collectives, by process group; empty if torch records none.
    """

    rank: Rank
    doing: Doing
    pid: int | None = None
    where: str = ""
    site: Site | None = None
    text: str = ""
    calls: tuple[GroupCalls, ...] = ()


class Stall(Record, frozen=True):
    """Stall: no rank of a part has made progress for too long.

    Args:
        since_s: Unix time of the last progress.
        seen_s: Unix time of the stacks.
        limit_s: seconds without progress that count as a stall.
        step: last finished step on this node.
        is_reported: its ranks report progress; otherwise they exchange nothing with other nodes.
    """

    since_s: float
    limit_s: float
    step: int | None
    stacks: tuple[RankStack, ...]
    is_reported: bool = True
    seen_s: float | None = None
