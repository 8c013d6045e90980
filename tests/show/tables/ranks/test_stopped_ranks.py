"""Stopped ranks: what is said of each."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_mntrain.model.ids import NodeId, Rank
from jupyter_mntrain.model.records.job import JobState, PartStatus, RankStatus
from jupyter_mntrain.show.tables.ranks.stopped_ranks import stopped_ranks

STOPPED_S = 100.0


def told(*ranks: RankStatus, state: JobState = "canceled", stopped_s: float | None = STOPPED_S):
    part = PartStatus(
        node_id=NodeId("n1"),
        node="node1",
        state=state,
        ranks=ranks,
        ended_s=STOPPED_S + 31.0,
        stopped_s=stopped_s,
    )
    view = msgspec.defstruct("View", [("parts", tuple)])((part,))
    return list(stopped_ranks(view))


def rank(number: int, **fields: object) -> RankStatus:
    return RankStatus(rank=Rank(number), state="canceled", **fields)


@pytest.mark.wording
def test_each_rank_has_its_end():
    assert told(
        rank(0, ended_s=112.0),
        rank(1, ended_s=130.0, killed_in="save (train.py:5)"),
        rank(2, ended_s=112.2),
        rank(3, killed_in=""),
        rank(4),
        rank(5, ended_s=90.0),
    ) == [
        "r0, r2 ended by themselves after 12\N{NO-BREAK SPACE}s",
        "r1 was killed after 30\N{NO-BREAK SPACE}s in save (train.py:5)",
        "r3 was killed after 31\N{NO-BREAK SPACE}s",
        "r4 ended by itself after 31\N{NO-BREAK SPACE}s",
    ]
    many = told(*(rank(one, killed_in="<lambda> (a{b}.py:5)") for one in range(10)))
    names = "r0, r1, r2, r3, r4, r5, r6, r7 and 2 more"
    killed = "were killed after 31\N{NO-BREAK SPACE}s in <lambda> (a{b}.py:5)"
    assert many == [f"{names} {killed}"]


def test_of_ranks_that_nobody_stopped_nothing_is_said():
    assert told(rank(0, ended_s=112.0), stopped_s=None) == []
    assert told(rank(0), state="stopping") == []
