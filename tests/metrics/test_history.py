"""Job history: samples of several nodes, in order and once each."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from jupyter_mntrain.metrics.downsampled.prefix import Prefix
from jupyter_mntrain.metrics.history import HistoryBuilder
from jupyter_mntrain.model.ids import NodeId, Rank
from jupyter_mntrain.model.records.metrics import (
    JournalLine,
    LinkSample,
    RankEnd,
    RankProgress,
    RankStart,
    Sample,
)
from tests.standin.jobs import history, step, view

START = RankStart(time_s=0.0, rank=Rank(0), local_rank=0, world_size=2, pid=1, host="node1")
END = RankEnd(time_s=9.0, rank=Rank(0), ok=True)
LINK = LinkSample(time_s=1.0, interface="eth1", interval_s=1.0, sent_bytes=1, received_bytes=2)


def test_a_rank_is_who_it_is_its_steps_and_its_end() -> None:
    got = history(
        view("running", "running"),
        {"node1": [START, step(0, 1), LINK, step(0, 2), END], "node2": [step(1, 1)]},
    )
    assert list(got.ranks) == [0, 1]
    assert got.ranks[Rank(0)].start == START
    assert got.ranks[Rank(0)].end == END
    assert [s.step for s in got.ranks[Rank(0)].steps] == [1, 2]
    assert (got.ranks[Rank(1)].start, got.ranks[Rank(1)].end) == (None, None)
    assert list(got.links) == ["node1"]
    assert list(got.links["node1"]) == [LINK]


def test_an_older_attempt_is_not_mixed_in() -> None:
    builder = HistoryBuilder()
    bodies: list[tuple[int, Sample]] = [(1, step(0, 1)), (1, step(0, 2)), (2, step(0, 2))]
    for seq, (attempt, body) in enumerate(bodies, 1):
        builder.add(NodeId("n"), "node1", JournalLine(seq=seq, attempt=attempt, body=body))
    second = builder.snapshot(view("running", "running", number=2), is_complete=False)
    assert [s.step for s in second.ranks[Rank(0)].steps] == [2]
    third = builder.snapshot(view("running", "running", number=3), is_complete=False)
    assert third.ranks == {}


def test_a_snapshot_does_not_grow_with_what_comes_later_and_copies_nothing() -> None:
    builder = HistoryBuilder()
    job = view("running", "running")
    builder.add(NodeId("n"), "node1", JournalLine(seq=1, attempt=1, body=step(0, 1)))
    before = builder.snapshot(job, is_complete=False).ranks[Rank(0)].steps
    builder.add(NodeId("n"), "node1", JournalLine(seq=2, attempt=1, body=step(0, 2)))
    after = builder.snapshot(job, is_complete=False).ranks[Rank(0)].steps
    assert (len(before), len(after)) == (1, 2)
    assert before[0] is after[0]
    assert isinstance(before, Prefix)
    assert before._items is after._items  # type: ignore[attr-defined]


JOURNALS = {
    "node1": [step(0, n) for n in range(1, 8)],
    "node2": [step(rank, n) for n in range(1, 5) for rank in (1, 2)],
}


PIECES = st.tuples(st.sampled_from(sorted(JOURNALS)), st.integers(0, 3), st.integers(0, 3))


@given(st.lists(PIECES, max_size=12))
def test_streams_cut_anywhere_and_resumed_give_every_line_once_and_in_order(
    pieces: list[tuple[str, int, int]],
) -> None:
    """Pieces of two nodes' journals, each going some lines back and then some further on."""
    builder = HistoryBuilder()
    for node, back, forward in [*pieces, ("node1", 9, 9), ("node2", 9, 9)]:
        last = builder.last_seq(NodeId(node))
        for seq in range(max(0, last - back) + 1, min(last + forward, len(JOURNALS[node])) + 1):
            line = JournalLine(seq=seq, attempt=1, body=JOURNALS[node][seq - 1])
            assert builder.add(NodeId(node), node, line) == (seq > last)
    got = builder.snapshot(view("running", "running"), is_complete=True)
    assert {rank: [s.step for s in one.steps] for rank, one in got.ranks.items()} == {
        0: [1, 2, 3, 4, 5, 6, 7],
        1: [1, 2, 3, 4],
        2: [1, 2, 3, 4],
    }


@given(st.lists(st.integers()), st.lists(st.integers()), st.slices(12))
def test_a_prefix_is_the_list_it_was(now: list[int], later: list[int], part: slice) -> None:
    items = list(now)
    prefix = Prefix(items)
    items.extend(later)
    assert prefix == now
    assert list(prefix) == now
    assert prefix[part] == now[part]
    assert len(prefix) == len(now)
    assert list(reversed(prefix)) == now[::-1]
    for index in range(-len(now), len(now)):
        assert prefix[index] == now[index]


def test_progress_is_the_newest_until_a_step_is_made() -> None:
    job = view("running", "running")
    half = RankProgress(time_s=1.0, rank=Rank(0), what="loading the model", done=1, total=2)
    full = RankProgress(time_s=2.0, rank=Rank(0), what="loading the model", done=2, total=2)

    def newest(*bodies: Sample) -> RankProgress | None:
        return history(job, {"node1": bodies}).ranks[Rank(0)].progress

    assert newest(half) == half
    rated = msgspec.structs.replace(full, per_s=1.0)
    assert newest(half, full) == rated
    assert newest(half, START) == half, "introducing itself is not a step"
    assert newest(half, step(0, 1)) is None
    assert newest(step(0, 1), half) == half, "between two steps"
    other = RankProgress(time_s=9.0, rank=Rank(0), what="reading the text", done=5)
    assert newest(half, full, other) == other, "another activity has a rate of its own"
