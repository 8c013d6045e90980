"""Stopped ranks: what each rank did in the grace period of a stop. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.quantities import agreeing
from jupyter_mntrain.model.records.job import TERMINAL, JobView, PartStatus, RankStatus
from jupyter_mntrain.show import formats

MOST_NAMED = 8
"""Number of ranks that one line names."""


def stopped_ranks(view: JobView) -> Iterator[str]:
    """Yield one line for all ranks that ended alike: ``r0, r1 ended by themselves after 12 s``."""
    alike: dict[str, list[Rank]] = {}
    for part in view.parts:
        for one in part.ranks:
            if (told := _told(part, one)) is not None:
                alike.setdefault(told, []).append(one.rank)
    for told, ranks in alike.items():
        named = ", ".join(f"r{rank}" for rank in sorted(ranks)[:MOST_NAMED])
        more = len(ranks) - MOST_NAMED
        itself = agreeing(ranks, "itself", "themselves")
        names = f"{named} and {more} more" if more > 0 else named
        yield f"{names} {told.format(were=agreeing(ranks, 'was', 'were'), itself=itself)}"


def _told(part: PartStatus, one: RankStatus) -> str | None:
    if part.stopped_s is None or part.state not in TERMINAL:
        return None
    ended_s = one.ended_s or one.done_s or part.ended_s
    if ended_s is None or ended_s < part.stopped_s:
        return None  # before the stop
    after = f"after {formats.duration(ended_s - part.stopped_s)}"
    if one.killed_in is None:
        return f"ended by {{itself}} {after}"
    # Braces of a name are no places to fill in.
    where = one.killed_in.replace("{", "{{").replace("}", "}}")
    return f"{{were}} killed {after}" + (f" in {where}" if where else "")
