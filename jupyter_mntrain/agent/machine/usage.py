"""Usage: records the load of this node's processors, GPUs and interfaces for a week."""

from __future__ import annotations

import logging
import os
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import ceil, floor
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from jupyter_mntrain.agent.machine.devices.limits import usable_memory
from jupyter_mntrain.metrics.downsampled.blocks import Row, Rule, from_bytes, joined, lowest, packed
from jupyter_mntrain.metrics.downsampled.samples import UNKNOWN
from jupyter_mntrain.metrics.node_history import (
    FIGURES,
    Figure,
    HistoryGap,
    HistoryJob,
    HistoryLine,
    HistoryPart,
    PartKind,
)
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.failure.system_errors import full_disk
from jupyter_mntrain.model.files import PRIVATE, private_directory, write_atomically
from jupyter_mntrain.model.records.job import JobRecord
from jupyter_mntrain.model.records.node import Heartbeat
from jupyter_mntrain.model.text.file_name import file_name

# Ring: the newest rows of a series in a file of a fixed size, each at the place of its time.


FLOAT_BYTES = 8


class Ring:
    """Rows of floats, numbered by time: row ``n`` is the ``n``-th interval since 1970.

    A row replaces the one of ``rows`` intervals before. Each has its number and a checksum with it:
    what was never written, is older, or is damaged is missing, and no other row suffers from it.
    Nothing is held in memory.

    Args:
        width: floats in a row.
        rows: that are kept.
    """

    def __init__(self, path: Path, width: int, rows: int) -> None:
        self._path = path
        self._rows = rows
        self._row_bytes = FLOAT_BYTES * (width + 2)

    def write(self, rows: Mapping[int, Row]) -> None:
        """Write rows by number.

        Raises:
            OSError: the disk is full, or fails.
        """
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT, PRIVATE)
        try:
            for number, row in rows.items():
                content = packed([(float(number), *row)])
                content += packed([(float(zlib.crc32(content)),)])
                at = number % self._rows * self._row_bytes
                if os.pwrite(descriptor, content, at) < len(content):
                    raise full_disk(self._path)
        finally:
            os.close(descriptor)

    def read(self, begin: int, end: int) -> dict[int, Row]:
        """Read the existing rows from number ``begin`` up to, but not including, ``end``.

        Raises:
            OSError: the disk fails.
        """
        found: dict[int, Row] = {}
        try:
            descriptor = os.open(self._path, os.O_RDONLY)
        except FileNotFoundError:
            return found
        try:
            at = max(begin, end - self._rows)
            while at < end:
                place = at % self._rows
                count = min(end - at, self._rows - place)
                content = os.pread(descriptor, count * self._row_bytes, place * self._row_bytes)
                found.update(self._intact(content, at))
                at += count
        finally:
            os.close(descriptor)
        return found

    def remove(self) -> None:
        """Delete the file."""
        self._path.unlink(missing_ok=True)

    def _intact(self, content: bytes, first: int) -> dict[int, Row]:
        found: dict[int, Row] = {}
        size = self._row_bytes
        for index in range(len(content) // size):
            row = content[index * size : (index + 1) * size]
            number, *values, checksum = from_bytes(row)
            if number == first + index and checksum == zlib.crc32(row[:-FLOAT_BYTES]):
                found[first + index] = tuple(values)
        return found


# Usage series: what is known of one part of the node, by the second and coarser.


MOST_UNSAVED = 600
"""Seconds that are remembered while the disk is full."""


class Resolution(NamedTuple):
    """One time resolution of the history.

    Args:
        name: ending of its files.
        step_s: seconds that a row stands for.
        rows: that are kept.
    """

    name: str
    step_s: int
    rows: int

    @property
    def kept_s(self) -> int:
        return self.step_s * self.rows


def _rows(step_s: int, kept_s: float) -> int:
    return max(1, round(kept_s / step_s))


LEVELS = (
    Resolution("second", 1, _rows(1, tunables.seconds("history.second_kept_s"))),
    Resolution("minute", 60, _rows(60, tunables.seconds("history.minute_kept_s"))),
    Resolution("ten_minutes", 600, _rows(600, tunables.seconds("history.ten_minutes_kept_s"))),
)
"""Finest first. Each row of a coarser one is made of those of the one before."""

STATISTICS = 4
"""Floats per figure in a row: sum and number of known values, lowest, highest."""


class UsageSeries:
    """Time series of one part of the node: the node itself, a GPU or an interface.

    The first float of each row is when the agent began that took it: two rows with a gap between
    them tell so whether it was another agent. Only what was not saved yet is in memory.

    Args:
        base: path of its files, without their ending.
        figures: how many it has.
    """

    def __init__(self, base: Path, figures: int) -> None:
        self._figures = figures
        self._rules: tuple[Rule, ...] = (max, *(sum, sum, lowest, max) * figures)
        # A single second has neither a number of values nor extremes.
        widths = (1 + figures, len(self._rules), len(self._rules))
        self._rings = tuple(
            Ring(base.with_name(f"{base.name}.{level.name}"), width, level.rows)
            for level, width in zip(LEVELS, widths, strict=True)
        )
        self._unsaved: dict[int, Row] = {}

    def add(self, time_s: float, began_s: float, values: Sequence[float | None]) -> None:
        """Add the figures of one second; ``None`` means unknown."""
        known = (UNKNOWN if value is None else float(value) for value in values)
        self._unsaved[int(time_s)] = (began_s, *known)
        while len(self._unsaved) > MOST_UNSAVED:
            del self._unsaved[next(iter(self._unsaved))]

    def save(self) -> None:
        """Write new rows, and the coarser rows that they change.

        Raises:
            OSError: the disk is full; what was not written is tried again.
        """
        if not self._unsaved:
            return
        self._rings[0].write(self._unsaved)
        numbers = set(self._unsaved)
        for index, level in enumerate(LEVELS[1:], start=1):
            factor = level.step_s // LEVELS[index - 1].step_s
            numbers = {number // factor for number in numbers}
            changed = {}
            for number in numbers:
                parts = self.rows(index - 1, number * factor, (number + 1) * factor)
                if parts:
                    changed[number] = self.joined(list(parts.values()))
            self._rings[index].write(changed)
        self._unsaved.clear()

    def rows(self, index: int, begin: int, end: int) -> dict[int, Row]:
        """Return rows of a level by number, each with all statistics, as of the last :meth:`save`.

        Raises:
            OSError: the disk fails.
        """
        found = self._rings[index].read(begin, end)
        return found if index else {number: _single(row) for number, row in found.items()}

    def remove_if_older(self, now_s: float) -> bool:
        """Delete the files if all their rows have expired; return whether they had.

        Raises:
            OSError: the disk fails.
        """
        level = LEVELS[-1]
        newest = int(now_s) // level.step_s
        if self._unsaved or self.rows(len(LEVELS) - 1, newest - level.rows, newest + 2):
            return False
        for ring in self._rings:
            ring.remove()
        return True

    def joined(self, rows: Sequence[Row]) -> Row:
        """Combine several rows into one."""
        return joined(rows, self._rules)


def _single(row: Row) -> Row:
    """Return the statistics of a single second."""
    began_s, *values = row
    statistics: list[float] = [began_s]
    for value in values:
        is_known = value != UNKNOWN
        statistics += (value if is_known else 0.0, float(is_known), value, value)
    return tuple(statistics)


# Usage book: what this node's processors, GPUs and interfaces did, kept for a week.


log = logging.getLogger("mntrain.agent")

SAVE_INTERVAL_S = 10.0
"""Interval of writing it to disk. So much is lost when a machine loses power."""

MOST_PARTS = 64
"""GPUs and interfaces that are kept, at most, and the node itself: it bounds the disk space."""

DIRECTORY: Final = "history"
_PARTS: Final = "parts.json"

Own = Mapping[str, tuple[float, float]]
"""Bytes per second that ranks of jobs send and receive, by interface."""

_decoder = msgspec.json.Decoder(tuple[HistoryPart, ...])


class UsageBook:
    """The history of this node. Files have a fixed size; damaged rows count as unknown.

    Args:
        directory: of its files; made when there is something to write.
        clock: Unix time.
    """

    def __init__(
        self,
        directory: Path,
        clock: Callable[[], float] = time.time,
        save_interval_s: float = SAVE_INTERVAL_S,
    ) -> None:
        self._directory = directory
        self._save_interval_s = save_interval_s
        self._began_s = self._saved_s = clock()
        self._memory_bytes = usable_memory().total_bytes
        self._parts = {_name(part): part for part in _read(directory / _PARTS)}
        self._told: dict[str, HistoryPart] = {}
        """The parts as this agent has written them."""
        self._series: dict[str, UsageSeries] = {}

    def take(self, heartbeat: Heartbeat, own: Own, listed: Collection[str]) -> None:
        """Add one second.

        Args:
            listed: the interfaces that are kept.

        Raises:
            OSError: it cannot be saved; it is tried again.
        """
        used_bytes = self._memory_bytes - heartbeat.memory_available_bytes
        node = HistoryPart(kind="node", total=float(self._memory_bytes))
        self._add(heartbeat.time_s, node, (heartbeat.cpu_share, used_bytes))
        for gpu in heartbeat.gpus:
            card = HistoryPart(
                kind="gpu",
                key=gpu.uuid,
                index=gpu.index,
                model=gpu.name,
                total=float(gpu.memory_total_bytes),
            )
            figures = (gpu.utilization, gpu.memory_used_bytes, gpu.power_w, gpu.temperature_c)
            self._add(heartbeat.time_s, card, figures)
        for one in (rate for rate in heartbeat.interfaces if rate.name in listed):
            ours = own.get(one.name, (None, None))
            moved = (one.sent_bytes_per_s, one.received_bytes_per_s)
            self._add(
                heartbeat.time_s, HistoryPart(kind="interface", key=one.name), (*moved, *ours)
            )
        # A clock that was set back must not end the saving.
        if abs(heartbeat.time_s - self._saved_s) >= self._save_interval_s:
            self._saved_s = heartbeat.time_s
            self.save()

    def save(self) -> None:
        """Write new rows.

        Raises:
            OSError: the disk is full; what was not written is tried again.
        """
        private_directory(self._directory)
        for series in self._series.values():
            series.save()
        if self._told != self._parts:
            self._forget_old()
            content = msgspec.json.encode(tuple(self._parts.values()))
            write_atomically(self._directory / _PARTS, content)
            self._told = dict(self._parts)

    def parts(self) -> Iterator[tuple[HistoryPart, UsageSeries]]:
        """Yield each part with its series: the node, then GPUs, then interfaces."""
        order = list(FIGURES)
        for name, part in sorted(
            self._parts.items(), key=lambda one: (order.index(one[1].kind), one[1].index or 0)
        ):
            yield part, self._series_of(name, part.kind)

    def _add(self, time_s: float, part: HistoryPart, figures: Sequence[float | None]) -> None:
        name = _name(part)
        if name not in self._parts and len(self._parts) >= MOST_PARTS:
            return
        self._parts[name] = part
        self._series_of(name, part.kind).add(time_s, self._began_s, figures)

    def _series_of(self, name: str, kind: PartKind) -> UsageSeries:
        known = self._series.get(name)
        if known is None:
            known = self._series[name] = UsageSeries(self._directory / name, len(FIGURES[kind]))
        return known

    def _forget_old(self) -> None:
        """Delete parts that have had no figures for longer than anything is kept."""
        for name, part in list(self._parts.items()):
            if self._series_of(name, part.kind).remove_if_older(self._saved_s):
                del self._parts[name], self._series[name]


def _name(part: HistoryPart) -> str:
    """Return the prefix of a part's file names."""
    return f"{part.kind}-{file_name(part.key)}" if part.key else part.kind


def _read(path: Path) -> tuple[HistoryPart, ...]:
    try:
        return _decoder.decode(path.read_bytes())
    except FileNotFoundError:
        return ()
    except (OSError, msgspec.DecodeError) as error:
        log.warning("%s is not readable (%s): only what is present now is listed", path, error)
        return ()


# Usage answer: a time of this node's history as lines of points, and where there are none.


GAP_S = 5.0
"""A time without values is a gap from this length on: a busy agent may miss a second."""

MOST_JOBS = 200
"""Newest jobs of a time that an answer names."""

POINTS_AT_ONCE = 32

DIGITS: dict[Figure, int] = {"cpu_share": 4, "utilization": 4, "power_w": 1, "temperature_c": 1}
"""Decimals; bytes have none."""


class Span(NamedTuple):
    """Rows to read of each part: so many points of ``factor`` rows each, from row ``begin`` on."""

    level: int
    begin: int
    factor: int
    points: int

    @property
    def end(self) -> int:
        return self.begin + self.factor * self.points

    @property
    def begin_s(self) -> int:
        return self.begin * LEVELS[self.level].step_s

    @property
    def step_s(self) -> int:
        return self.factor * LEVELS[self.level].step_s


def span_of(since_s: float, until_s: float, now_s: float, points: int) -> Span:
    """Choose the finest rows that reach back to ``since_s``, in at most ``points`` points."""
    reaching = (n for n, level in enumerate(LEVELS) if since_s > now_s - level.kept_s - 1)
    level = next(reaching, len(LEVELS) - 1)
    step_s = LEVELS[level].step_s
    since_s = max(since_s, now_s - LEVELS[level].kept_s)
    begin, end = floor(since_s / step_s), max(floor(since_s / step_s), floor(until_s / step_s)) + 1
    # One more: the first point begins where others of this length do, however the time moves on.
    factor = max(1, ceil((end - begin) / (points - 1)) if end - begin > points else 1)
    begin -= begin % factor
    return Span(level, begin, factor, ceil((end - begin) / factor))


def part_over(part: HistoryPart, series: UsageSeries, span: Span) -> HistoryPart:
    """Return a part with its lines over a span, without lines that have no data.

    Raises:
        OSError: the disk fails.
    """
    points: list[Row | None] = []
    # In pieces: a day's rows at once would double the agent's memory.
    for first in range(span.begin, span.end, span.factor * POINTS_AT_ONCE):
        last = min(first + span.factor * POINTS_AT_ONCE, span.end)
        rows = series.rows(span.level, first, last)
        for begin in range(first, last, span.factor):
            found = _within(rows, begin, span.factor)
            points.append(series.joined(found) if found else None)
    is_single = span.step_s == 1
    lines = (
        _line(figure, points, 1 + STATISTICS * index, is_single=is_single)
        for index, figure in enumerate(FIGURES[part.kind])
    )
    known = (line for line in lines if any(value is not None for value in line.mean))
    return msgspec.structs.replace(part, lines=tuple(known))


def gaps(node: UsageSeries, span: Span) -> tuple[HistoryGap, ...]:
    """Return the periods in which nothing was recorded.

    Raises:
        OSError: the disk fails.
    """
    step_s, coarsest = LEVELS[span.level].step_s, len(LEVELS) - 1
    rows = node.rows(span.level, span.begin, span.end)
    began = {number: row[0] for number, row in rows.items()}
    if began and span.begin not in began:
        kept = LEVELS[coarsest]
        first = span.begin_s // kept.step_s
        older = node.rows(coarsest, first - kept.rows, first)
        if older:
            began[span.begin - 1] = older[max(older)][0]
    numbers = sorted(began)
    found = []
    if numbers and (numbers[0] - span.begin) * step_s >= GAP_S:
        begin_s, end_s = float(span.begin * step_s), float(numbers[0] * step_s)
        found.append(HistoryGap(begin_s=begin_s, end_s=end_s, state="before"))
    for before, after in pairwise(numbers):
        if (after - before - 1) * step_s >= GAP_S:
            found.append(
                HistoryGap(
                    begin_s=float((before + 1) * step_s),
                    end_s=float(after * step_s),
                    state="suspended" if began[before] == began[after] else "off",
                )
            )
    return tuple(found)


def jobs_within(records: Iterable[JobRecord], begin_s: float, end_s: float) -> list[HistoryJob]:
    """Return the newest jobs that ran here in this period, the oldest first."""
    found = []
    for record in records:
        part = record.part
        if part.started_s is None or part.started_s > end_s:
            continue
        if part.ended_s is not None and part.ended_s < begin_s:
            continue
        places = record.attempt.placements
        found.append(
            HistoryJob(
                job_id=record.job_id,
                name=record.label.name or record.spec.name,
                state=part.state,
                ranks=tuple(one.rank for one in part.ranks),
                gpus=next((one.gpus for one in places if one.node_id == part.node_id), ()),
                begin_s=part.started_s,
                end_s=part.ended_s,
            )
        )
    return sorted(found, key=lambda one: one.begin_s)[-MOST_JOBS:]


def _within(rows: Mapping[int, Row], begin: int, factor: int) -> list[Row]:
    return [rows[number] for number in range(begin, begin + factor) if number in rows]


def _line(figure: Figure, points: list[Row | None], at: int, *, is_single: bool) -> HistoryLine:
    digits = DIGITS.get(figure, 0)

    def column(statistic: int) -> tuple[float | None, ...]:
        return tuple(
            None
            if row is None or row[at + statistic] == UNKNOWN
            else round(row[at + statistic], digits)
            for row in points
        )

    mean = tuple(
        None if row is None or not row[at + 1] else round(row[at] / row[at + 1], digits)
        for row in points
    )
    if is_single:
        return HistoryLine(figure=figure, mean=mean)
    return HistoryLine(figure=figure, mean=mean, low=column(2), high=column(3))
