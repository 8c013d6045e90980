"""Pyramid: one series in files of blocks of 4, 16, 64, … samples, appended as they fill."""

from __future__ import annotations

import os
from array import array
from collections.abc import Sequence
from pathlib import Path

from jupyter_mntrain.metrics.thinned.blocks import (
    FACTOR,
    RULES,
    Row,
    Rule,
    as_bytes,
    from_bytes,
    joined,
)
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.failure.system_errors import full_disk
from jupyter_mntrain.model.files import PRIVATE

MOST_BLOCKS = tunables.count("journal.blocks_per_file")
FLOAT_BYTES = 8


class Kept(Record, frozen=True):
    """What of a pyramid is not in its files, and how much of these counts.

    Args:
        samples: that it has taken.
        blocks: in each file, finest first.
        pending: rows that wait for their block to be whole; single samples first.
    """

    samples: int = 0
    blocks: tuple[int, ...] = ()
    pending: tuple[tuple[Row, ...], ...] = ()


class Pyramid:
    """The files ``name.1``, ``name.2``, … of blocks of 4, 16, … samples.

    A file holds the first :data:`MOST_BLOCKS` blocks, so that a series of any length needs a few
    megabytes more for each factor of 4. Nothing is written before :meth:`save`.

    Raises:
        ValueError: the files do not have what ``kept`` says.
    """

    def __init__(self, base: Path, kept: Kept, rules: Sequence[Rule] = RULES) -> None:
        self._base = base
        self._rules = rules
        self._row_bytes = FLOAT_BYTES * len(rules)
        self.samples = kept.samples
        self._saved = list(kept.blocks)
        self._unsaved: list[array[float]] = [array("d") for _ in kept.blocks]
        self._pending = [list(rows) for rows in kept.pending] or [[]]
        for level, blocks in enumerate(kept.blocks):
            path = self._path(level)
            if blocks and (not path.exists() or path.stat().st_size < blocks * self._row_bytes):
                raise ValueError(f"{path} is too short")

    def add(self, row: Row) -> None:
        """Take one more sample."""
        self.samples += 1
        for level in range(len(self._pending) + 1):
            if level == len(self._pending):
                self._pending.append([])
            pending = self._pending[level]
            pending.append(row)
            if len(pending) < FACTOR:
                return
            row = joined(pending, self._rules)
            pending.clear()
            self._store(level, row)

    def _store(self, level: int, row: Row) -> None:
        if level == len(self._saved):
            self._saved.append(0)
            self._unsaved.append(array("d"))
        if self.blocks(level) < MOST_BLOCKS:
            self._unsaved[level].extend(row)

    def levels(self) -> range:
        """From the finest file on."""
        return range(len(self._saved))

    @staticmethod
    def size(level: int) -> int:
        """Samples in a block of a file."""
        return int(FACTOR ** (level + 1))

    def blocks(self, level: int) -> int:
        """How many a file has."""
        return self._saved[level] + len(self._unsaved[level]) // len(self._rules)

    def is_full(self, level: int) -> bool:
        """Whether a file has a block for all samples, but those that fill none yet."""
        return self.blocks(level) >= self.samples // self.size(level)

    def read(self, level: int, begin: int, end: int) -> bytes:
        """Blocks of a file, as they are answered.

        Raises:
            OSError: it cannot be read.
        """
        saved, width = self._saved[level], len(self._rules)
        unsaved = self._unsaved[level][max(0, begin - saved) * width : max(0, end - saved) * width]
        content = b""
        if begin < saved:
            with self._path(level).open("rb") as file:
                file.seek(begin * self._row_bytes)
                content = file.read((min(end, saved) - begin) * self._row_bytes)
        return content + as_bytes(unsaved)

    def row(self, level: int, index: int) -> Row:
        """One block."""
        return tuple(from_bytes(self.read(level, index, index + 1)))

    def rows(self, level: int, begin: int, end: int) -> list[Row]:
        """Blocks of a file, one by one."""
        width = len(self._rules)
        data = from_bytes(self.read(level, begin, end)) if end > begin else array("d")
        return [tuple(data[at : at + width]) for at in range(0, len(data), width)]

    def remainder(self, level: int) -> list[Row]:
        """What a file will have once its next block is whole, coarse rows first."""
        return [row for rows in reversed(self._pending[: level + 1]) for row in rows]

    def rest(self, level: int) -> list[tuple[Row, int]]:
        """What is in no block of a file, oldest first, each with how many samples it stands for;
        of level -1, all samples.
        """
        sizes = [FACTOR**one for one in range(len(self._pending))]
        told = [
            (row, size)
            for size, rows in reversed(list(zip(sizes, self._pending, strict=True))[: level + 1])
            for row in rows
        ]
        return told if level >= 0 else [(row, 1) for row in self._pending[0]]

    def save(self) -> Kept:
        """Append what is new to the files.

        Raises:
            OSError: the disk is full; what was not written is tried again.
        """
        for level, unsaved in enumerate(self._unsaved):
            if not unsaved:
                continue
            descriptor = os.open(self._path(level), os.O_WRONLY | os.O_CREAT, PRIVATE)
            try:
                content = as_bytes(unsaved)
                done = os.pwrite(descriptor, content, self._saved[level] * self._row_bytes)
                if done < len(content):
                    raise full_disk(self._path(level))
            finally:
                os.close(descriptor)
            self._saved[level] += len(unsaved) // len(self._rules)
            self._unsaved[level] = array("d")
        return Kept(
            samples=self.samples,
            blocks=tuple(self._saved),
            pending=tuple(tuple(rows) for rows in self._pending),
        )

    def remove(self) -> None:
        """Delete the files."""
        for level in self.levels():
            self._path(level).unlink(missing_ok=True)

    def _path(self, level: int) -> Path:
        return self._base.with_name(f"{self._base.name}.{level + 1}")
