"""Stall history: what stalled a job, each cause with its own entry."""

from __future__ import annotations

import msgspec

from jupyter_mntrain.agent.gang.watch import with_stall
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.job import MOST_KEPT, Episode, newest

WAITS = Problem(kind=Kind.ALL_WAIT, cause="all ranks wait", time_s=10.0, seen_s=20.0)
DOWN = Problem(kind=Kind.LINK_DOWN, cause="eth1 is down", node="n2", time_s=10.0, seen_s=25.0)
STOPPED = Problem(
    kind=Kind.STOPPED, cause="stopped", node="n1", rank=Rank(0), time_s=10.0, seen_s=45.0
)


def test_an_unexplained_stall_gets_its_cause_and_another_cause_is_another_entry() -> None:
    (first,) = with_stall((), WAITS, 21.0)
    assert (first.problem, first.end_s, first.is_stall) == (WAITS, None, True)
    (named,) = with_stall((first,), DOWN, 26.0)
    assert (named.problem, named.end_s) == (DOWN, None)
    later = msgspec.structs.replace(DOWN, seen_s=40.0)
    (again,) = with_stall((named,), later, 41.0)
    assert again.problem.seen_s == 40.0
    over, other = with_stall((again,), STOPPED, 46.0)
    assert (over.problem.kind, over.end_s) == (Kind.LINK_DOWN, 46.0)
    assert (other.problem.kind, other.problem.time_s, other.end_s) == (Kind.STOPPED, 45.0, None)
    ended = with_stall((over, other), None, 50.0)
    assert [one.end_s for one in ended] == [46.0, 50.0]
    assert with_stall(ended, None, 60.0) is ended


def test_nothing_new_changes_nothing_and_slow_downs_stay() -> None:
    slow = Episode(problem=Problem(kind=Kind.SLOW_RANK, cause="slow", time_s=1.0), label="slow")
    known = with_stall((slow,), DOWN, 26.0)
    assert known[0] is slow
    assert with_stall(known, DOWN, 27.0) is known


def test_what_is_not_over_is_kept_however_old_it_is() -> None:
    going = Episode(problem=msgspec.structs.replace(DOWN, time_s=0.0), label="", is_stall=True)
    over = [
        Episode(problem=msgspec.structs.replace(DOWN, time_s=at), label="", end_s=at + 1)
        for at in map(float, range(1, MOST_KEPT + 5))
    ]
    kept = newest((going, *over))
    assert len(kept) == MOST_KEPT
    assert kept[0] is going
    assert kept[1:] == tuple(over[-MOST_KEPT + 1 :])
