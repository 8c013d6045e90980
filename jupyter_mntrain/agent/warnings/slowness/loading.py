"""Loading: estimates what silent ranks read from disks before their first step. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from jupyter_mntrain.agent.warnings.slowness.counters import Counters
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.metrics import RankProgress

LEAST_BYTES_PER_S = 2**20
"""A rank that reports nothing is loading while it reads at least this much per second from disks,
and until it has not for this long."""
OVER_AFTER_S = 5.0
WHAT = "loading"


class Loading:
    """Tracks the loading of one part's ranks, except those that report anything themselves."""

    def __init__(self) -> None:
        self._silent: dict[Rank, tuple[float, int, float]] = {}
        """Time and bytes of the last look, and when it last read much."""
        self._told: dict[Rank, int] = {}
        self._reports: set[Rank] = set()

    def reports(self, rank: Rank) -> None:
        """Note that a rank reports its own progress."""
        self._reports.add(rank)
        self._told.pop(rank, None)

    def see(self, counters: Counters) -> Iterator[RankProgress]:
        """Add a reading of the counters; yield the progress of ranks that report none."""
        for rank in counters.ranks:
            if rank.rank in self._reports:
                continue
            time_s, size, read_s = self._silent.get(
                rank.rank, (counters.time_s, rank.read_bytes, -OVER_AFTER_S)
            )
            passed_s = max(counters.time_s - time_s, 1e-3)
            if rank.read_bytes - size >= LEAST_BYTES_PER_S * passed_s:
                read_s = counters.time_s
            self._silent[rank.rank] = (counters.time_s, rank.read_bytes, read_s)
            if counters.time_s - read_s < OVER_AFTER_S:
                self._told[rank.rank] = rank.read_bytes
                yield _said(counters.time_s, rank.rank, rank.read_bytes)
            elif (done := self._told.pop(rank.rank, None)) is not None:
                yield _said(counters.time_s, rank.rank, done, total=float(done))


def _said(time_s: float, rank: Rank, done: int, total: float | None = None) -> RankProgress:
    return RankProgress(
        time_s=time_s, rank=rank, what=WHAT, done=float(done), total=total, unit="B"
    )
