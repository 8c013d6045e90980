"""Loading: what silent ranks read from disks is told, and that it is over."""

from __future__ import annotations

from jupyter_mntrain.agent.warnings.slowness.counters import Counters, RankCounters
from jupyter_mntrain.agent.warnings.slowness.observer import Loading
from jupyter_mntrain.model.ids import Rank

MB = 10**6


def said(loading: Loading, *sizes: float) -> list[tuple[float, bool]]:
    """What is said of a rank that has read so much, second by second."""
    found = []
    for second, size in enumerate(sizes):
        rank = RankCounters(rank=Rank(3), read_bytes=int(size))
        counters = Counters(time_s=float(second), interface="eth1", ranks=(rank,))
        found += [(one.done, one.is_over) for one in loading.see(counters)]
    return found


def test_what_is_read_is_told_until_nothing_has_been_read_for_a_while() -> None:
    sizes = [0, 40 * MB, 80 * MB, *[80 * MB] * 8]
    told = said(Loading(), *sizes)
    assert told[:2] == [(40 * MB, False), (80 * MB, False)]
    assert told[-1] == (80 * MB, True)
    assert [is_over for _, is_over in told].count(True) == 1


def test_little_reading_is_no_loading() -> None:
    assert said(Loading(), *(n * 1000 for n in range(20))) == []


def test_a_rank_that_reports_is_left_alone() -> None:
    loading = Loading()
    loading.reports(Rank(3))
    assert said(loading, 0, 40 * MB, 80 * MB) == []
