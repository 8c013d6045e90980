"""Arrival: a job has the same figures whatever its nodes told first, and in whatever parts."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from jupyter_mntrain.metrics.history import HistoryBuilder
from jupyter_mntrain.metrics.series import JobSeries
from jupyter_mntrain.metrics.series_builder import SeriesBuilder
from jupyter_mntrain.model.lifecycle.rollup import roll_up
from jupyter_mntrain.model.records.metrics import JournalLine, LinkSample
from jupyter_mntrain.model.records.node import Capacity
from tests.metrics.agreement.recordings import NAMES, NodeRecording, Recording, load
from tests.standin.jobs import measured_links

PARTS = (1, 2, 3, 10, 50, 10**6)
"""Lines that a node's journal is read by."""


class Reader:
    """A page: takes whatever is sent, as the Jupyter server sends it."""

    def __init__(self, builder: SeriesBuilder) -> None:
        self._builder = builder
        self._seq = 0
        self.summary: Any = None
        self.waits: dict[int, list[float | None]] = {}

    def look(self) -> None:
        if self._builder.seq == self._seq:
            return
        told = self._builder.since(self._seq)
        if not told.since:
            self.waits.clear()
        self._seq, self.summary = told.seq, told.summary
        for rank in told.ranks:
            self.waits.setdefault(rank.rank, []).extend(rank.wait)


def in_parts(recording: Recording, order: Iterator[tuple[int, int]]) -> tuple[JobSeries, Reader]:
    """What is told in the end, and what a page has that watched from the first line on.

    Args:
        order: which node's journal is read next, and how many lines of it.
    """
    view = roll_up(node.record for node in recording.nodes)
    history, builder = HistoryBuilder(), SeriesBuilder(view.job_id, "s")
    page = Reader(builder)
    left = [list(node.journal) for node in recording.nodes]
    for index, count in order:
        part = recording.nodes[index].record.part
        for line in left[index][:count]:
            history.add(part.node_id, part.node, line)
        del left[index][:count]
        builder.extend(history.snapshot(view, is_complete=not any(left)), recording.now_s)
        page.look()
        if not any(left):
            break
    return builder.whole(), page


def by_chance(recording: Recording, seed: int) -> Iterator[tuple[int, int]]:
    chance = random.Random(seed)
    while True:
        yield chance.randrange(len(recording.nodes)), chance.choice(PARTS)


def one_after_the_other(recording: Recording) -> Iterator[tuple[int, int]]:
    """The last node first."""
    for index in reversed(range(len(recording.nodes))):
        yield index, 10**6


def told(series: JobSeries) -> dict[str, Any]:
    built: dict[str, Any] = msgspec.to_builtins(series)
    return {name: one for name, one in built.items() if name not in ("seq", "stream")}


def check(recording: Recording, order: Iterator[tuple[int, int]]) -> None:
    whole = recording.sample.series
    series, page = in_parts(recording, order)
    assert told(series) == told(whole)
    assert page.summary == whole.summary
    assert page.waits == {one.rank: list(one.wait) for one in whole.ranks}


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_job_has_one_figure_however_its_history_arrives(name: str) -> None:
    recording = load(name)
    check(recording, one_after_the_other(recording))
    for seed in range(4):
        check(recording, by_chance(recording, seed))


def test_the_bubble_is_not_told_while_a_rank_that_may_add_a_stage_is_silent() -> None:
    recording = load("gpipe")
    view = roll_up(node.record for node in recording.nodes)
    history, builder = HistoryBuilder(), SeriesBuilder(view.job_id, "s")
    first = recording.nodes[0]
    for line in first.journal:
        history.add(first.record.part.node_id, first.record.part.node, line)
    builder.extend(history.snapshot(view, is_complete=False), recording.now_s)
    early = builder.whole()
    assert early.summary.schedule_bubble is None
    assert all(one.compute and not one.schedule_bubble and not one.wait for one in early.ranks)
    assert recording.sample.series.summary.schedule_bubble


@pytest.mark.parametrize("bytes_per_s", [1e6, 1e3])
def test_what_a_link_can_carry_counts_for_the_steps_that_were_told_before(
    bytes_per_s: float,
) -> None:
    recording = load("gpipe")
    nodes = [told_last(node, recording, bytes_per_s) for node in recording.nodes]
    late = Recording(tuple(nodes), recording.now_s)
    shares = [one.send for one in late.sample.series.ranks]
    assert all(one and None not in one for one in shares)
    check(late, one_after_the_other(late))
    check(late, by_chance(late, 1))


def told_last(node: NodeRecording, recording: Recording, bytes_per_s: float) -> NodeRecording:
    """Its links' capacity is measured, and only its last line says it."""
    names = [one.record.part.node for one in recording.nodes]
    capacity = Capacity(bytes_per_s=bytes_per_s, source="measured")
    silent = [without_capacity(line) for line in node.journal]
    last = next(one.body for one in reversed(silent) if isinstance(one.body, LinkSample))
    links = measured_links(node.record.part.node, names, capacity)
    body = msgspec.structs.replace(last, links=links)
    end = JournalLine(seq=silent[-1].seq + 1, attempt=silent[-1].attempt, body=body)
    return NodeRecording(node.record, (*silent, end))


def without_capacity(line: JournalLine) -> JournalLine:
    if not isinstance(line.body, LinkSample):
        return line
    body = msgspec.structs.replace(line.body, given=None, links=())
    return msgspec.structs.replace(line, body=body)
