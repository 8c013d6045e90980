"""Journal: a job's samples on this node, numbered and on disk, so that any reader can resume.

It keeps the beginning and the end of a long job; the middle is freed by punching a hole.
"""

from __future__ import annotations

import asyncio
import os
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import msgspec

from jupyter_mntrain.agent.attempt.supervisor import give_back
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.failure.system_errors import full_disk
from jupyter_mntrain.model.files import PRIVATE, write_atomically
from jupyter_mntrain.model.records.metrics import JournalLine, Sample, encoder, journal_decoder

READ_BYTES = 1 << 18
"""Per read: large enough for hundreds of lines, small enough not to block the event loop."""

MARK_EVERY = 1024
"""Lines between remembered positions: days of samples cost a few kilobytes of memory."""

HEAD_BYTES = tunables.size("journal.head_bytes")
KEPT_BYTES = tunables.size("journal.tail_bytes")

SLACK_BYTES = 16 * 2**20
"""Excess size before anything is deleted."""


class _Gap(Record, frozen=True):
    """The freed middle of a journal, in whole chunks of :data:`MARK_EVERY` lines.

    Args:
        first: chunks before it.
        last: chunks up to its end.
        begin: offset of its first byte.
        end: offset of the first byte after it.
        attempt: the attempt that ``sources`` belong to.
        sources: bytes of each source that had been read when the middle was freed.
    """

    first: int
    last: int
    begin: int
    end: int
    attempt: int
    sources: dict[str, int] = {}


class JournalIndex(Record, frozen=True):
    """Known contents of a journal, which need not be read again when it is reopened.

    Args:
        marks: as 64-bit integers.
    """

    seq: int = 0
    size: int = 0
    marks: bytes = b""
    attempt: int = 0
    sources: dict[str, int] = {}


@dataclass
class Journal:
    """An append-only NDJSON file, whose Nth line has the number N.

    Reopening continues after the last number. An incomplete last line, left by a crash, is cut off.

    Args:
        path: the file; created if missing.
        index: of what need not be read again.
        kept_bytes: most of the file that is kept, plus some slack; ``head_bytes`` of it are its
            beginning.
    """

    path: Path
    kept_bytes: int = KEPT_BYTES
    head_bytes: int = HEAD_BYTES
    slack_bytes: int = SLACK_BYTES
    index: JournalIndex | None = None

    def __post_init__(self) -> None:
        path = self.path
        self._gap_path = path.with_name(f"{path.name}.gap")
        self._gap: _Gap | None = None
        self._attempt = 0
        self._sources: dict[str, int] = {}
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, PRIVATE)
        self._marks = array("q")
        """Offsets of lines 1, 1 + MARK_EVERY, 1 + 2 MARK_EVERY, …"""
        self.last_seq = 0
        self.size = 0
        self.grown = asyncio.Event()
        self._recover()

    def append(
        self, body: Sample, *, attempt: int, source: str | None = None, offset: int | None = None
    ) -> JournalLine:
        """Number and store a sample. Returns its line.

        Raises:
            OSError: it could not be written completely; none of it is stored then.
        """
        line = JournalLine(
            seq=self.last_seq + 1, attempt=attempt, body=body, source=source, offset=offset
        )
        encoded = encoder.encode(line) + b"\n"
        if os.write(self._file, encoded) < len(encoded):
            os.truncate(self._file, self.size)
            raise full_disk(self.path)
        self._count(encoded)
        self._remember(line)
        self._trim()
        # Wake the waiting readers; the next wait gets a new event.
        self.grown.set()
        self.grown = asyncio.Event()
        return line

    def indexed(self) -> JournalIndex:
        """Return the :attr:`index` for reopening the journal."""
        return JournalIndex(
            seq=self.last_seq,
            size=self.size,
            marks=self._marks.tobytes(),
            attempt=self._attempt,
            sources=dict(self._sources),
        )

    def has(self, begin: int, end: int) -> bool:
        """Return whether all lines between two offsets are still there."""
        gap = self._gap
        return gap is None or end <= gap.begin or begin >= gap.end

    def position_after(self, seq: int) -> int:
        """Return the offset of the line after number ``seq``, which may not exist yet. If that line
        was freed, return the offset of the first line after the gap.
        """
        if seq >= self.last_seq:
            return self.size
        mark, rest = divmod(max(0, seq), MARK_EVERY)
        if self._gap is not None and self._gap.first <= mark < self._gap.last:
            return self._gap.end
        with self.path.open("rb") as file:
            file.seek(self._marks[mark])
            return self._marks[mark] + sum(len(line) for line in islice(file, rest))

    def read(self, position: int = 0) -> Iterator[tuple[bytes, int]]:
        """Yield blocks of complete lines from ``position`` on, each with the offset after it."""
        with self.path.open("rb") as file:
            while True:
                gap = self._gap
                if gap is not None and gap.begin <= position < gap.end:
                    position = gap.end
                room = READ_BYTES
                if gap is not None and position < gap.begin:
                    room = min(room, gap.begin - position)
                file.seek(position)
                # Complete lines only; the gap, too, begins at the start of a line.
                block = b"".join(file.readlines(room - 1))
                if not block:
                    return
                position += len(block)
                yield block, position

    def offsets(self, attempt: int) -> dict[str, int]:
        """Return the bytes already read of each source: a restarted agent continues from there."""
        gap, known = self._gap, self.index or JournalIndex()
        self._attempt = attempt
        for one in (known, gap):
            if one is not None and one.attempt == attempt:
                self._sources = dict(one.sources)
                break
        else:
            self._sources = {}
        for block, _ in self.read(known.size):
            for line in block.splitlines():
                try:
                    entry = journal_decoder.decode(line)
                except msgspec.MsgspecError:
                    continue  # written by a newer agent, or damaged; later lines are still valid
                if entry.attempt == attempt:
                    self._remember(entry)
        return dict(self._sources)

    def close(self) -> None:
        os.close(self._file)
        self.grown.set()

    def _count(self, line: bytes) -> None:
        if self.last_seq % MARK_EVERY == 0:
            self._marks.append(self.size)
        self.last_seq += 1
        self.size += len(line)

    def _remember(self, line: JournalLine) -> None:
        """Note how far a line's source has been read, so that freed lines are not read again."""
        if line.attempt > self._attempt:
            self._attempt, self._sources = line.attempt, {}
        if line.source is not None and line.attempt == self._attempt:
            self._sources[line.source] = max(self._sources.get(line.source, 0), line.offset or 0)

    def _trim(self) -> None:
        gap = self._gap
        lost = 0 if gap is None else gap.end - gap.begin
        if self.size - lost <= self.kept_bytes + self.slack_bytes:
            return
        tail_bytes = self.kept_bytes - self.head_bytes
        first = bisect_left(self._marks, self.head_bytes) if gap is None else gap.first
        last = bisect_right(self._marks, self.size - tail_bytes) - 1
        if last <= first:
            return
        gap = _Gap(
            first=first,
            last=last,
            begin=self._marks[first],
            end=self._marks[last],
            attempt=self._attempt,
            sources=self._sources,
        )
        # The disk is full: carry on; the next line tries again.
        with suppress(OSError):
            # Recorded first: after a crash, no reader must take the hole's zeros for lines.
            write_atomically(self._gap_path, msgspec.json.encode(gap))
            self._gap = gap
            give_back(self.path, gap.begin, gap.end)

    def _recover(self) -> None:
        with suppress(OSError, msgspec.MsgspecError):
            self._gap = msgspec.json.decode(self._gap_path.read_bytes(), type=_Gap)
        gap = self._gap
        with self.path.open("rb") as file:
            self._trust_index()
            file.seek(self.size)
            while line := file.readline():
                if gap is not None and self.size == gap.begin:
                    # The offsets of its lines are no longer needed.
                    self._marks.extend([gap.end] * (gap.last - len(self._marks)))
                    self.last_seq, self.size = gap.last * MARK_EVERY, gap.end
                    file.seek(gap.end)
                    continue
                if not line.endswith(b"\n"):
                    os.truncate(self._file, self.size)
                    return
                self._count(line)

    def _trust_index(self) -> None:
        """Skip the lines that the index covers, if the file still has them."""
        index, gap = self.index, self._gap
        freed = 0 if gap is None else gap.end
        if index is None or not freed <= index.size <= self.path.stat().st_size:
            self.index = None
            return
        self.last_seq, self.size = index.seq, index.size
        self._marks.frombytes(index.marks)
