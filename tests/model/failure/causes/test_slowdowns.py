"""Slow causes: what a rank that computes longer is told to suffer from."""

from __future__ import annotations

import pytest

from jupyter_mntrain.model.failure.causes.slowdowns import change_of_rank
from jupyter_mntrain.model.failure.fixes import fix_of
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.pressure import Measure, Pressure, RankPressure

RANK = RankPressure(
    rank=Rank(0), unit_s=Measure(now=0.3, before=0.1), own_s=Measure(now=0.3, before=0.1)
)


@pytest.mark.parametrize(
    ("cores", "waiting", "fix"),
    [
        (Measure(now=1.9, before=0.4), 0.94, "crowded"),
        (Measure(now=1.9, before=0.4), 0.10, ""),
        (Measure(now=1.9, before=1.8), 0.94, ""),
    ],
)
def test_many_small_programs_together_take_a_ranks_cores(
    cores: Measure, waiting: float, fix: str
) -> None:
    """A build starts hundreds of them: none lives long enough to be named."""
    node = Pressure(interface="eth1", cpu=Measure(now=waiting, before=waiting), others_cores=cores)
    change = change_of_rank(RANK, node)
    assert change.fix == fix_of(Kind.SLOW_RANK, fix)
    assert change.is_outer is bool(fix)
    assert ("1.9" in change.cause) is bool(fix)
