"""Rank progress: what ranks do before and between steps, on one line. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from jupyter_mntrain.model.records.job import TERMINAL
from jupyter_mntrain.model.records.metrics import RankProgress
from jupyter_mntrain.show import formats

if TYPE_CHECKING:
    from jupyter_mntrain.metrics.summary import RankSummary

LEAST_LEFT_S = 5.0
"""Time left is shown only if it is longer than this."""

WHAT_WIDTH = 60
"""Characters that fit next to a rank's name in the picture."""


def progress_words(progress: RankProgress) -> str:
    """Return an activity and the share done, or the amount if the total is unknown."""
    what, share = _what(progress), _share(progress)
    if share is not None:
        return ", ".join([what, formats.percent(share, 0), *_rate(progress)])
    if not progress.done:
        return what
    if progress.unit == "B":
        return ", ".join([what, formats.memory(progress.done), *_rate(progress)])
    return f"{what}, {formats.count(progress.done)} {progress.unit}".rstrip()


def ranks_progress(ranks: Iterable[RankSummary]) -> str | None:
    """Return the activities of all ranks, grouped if equal; ``None`` if there are none.

    "ranks 0–1 loading the model, 40 % to 55 %; rank 2 reading the text, 7 %"
    """
    by_what: dict[str, list[RankProgress]] = {}
    for rank in ranks:
        progress = under_way(rank.progress)
        if progress is not None and rank.state not in TERMINAL:
            by_what.setdefault(progress.what, []).append(progress)
    return "; ".join(map(_together, by_what.values())) or None


def under_way(progress: RankProgress | None) -> RankProgress | None:
    """Return the progress, unless it is complete."""
    return None if progress is None or progress.is_over else progress


def _together(group: Sequence[RankProgress]) -> str:
    if len(group) == 1:
        return f"rank {group[0].rank} {progress_words(group[0])}"
    who = f"ranks {formats.spans([one.rank for one in group])}"
    shares = [share for one in group if (share := _share(one)) is not None]
    if len(shares) < len(group):
        return f"{who} {_what(group[0])}"
    least, most = (formats.percent(share, 0) for share in (min(shares), max(shares)))
    among = least if least == most else f"{least} to {most}"
    return f"{who} {_what(group[0])}, {among}"


def _what(progress: RankProgress) -> str:
    """Return the activity, shortened to one line."""
    what = " ".join(progress.what.split())
    return what if len(what) <= WHAT_WIDTH else f"{what[: WHAT_WIDTH - 1].rstrip()}…"


def _rate(progress: RankProgress) -> Iterator[str]:
    """Yield bytes per second and the time left, where they are known."""
    if progress.per_s and progress.unit == "B":
        yield formats.byte_rate(progress.per_s)
    left_s = progress.remaining_s
    if left_s is not None and left_s >= LEAST_LEFT_S:
        yield f"{formats.duration(left_s)} left"


def _share(progress: RankProgress) -> float | None:
    return min(1.0, max(0.0, progress.done / progress.total)) if progress.total else None
