"""A job's samples on this node, numbered, on disk: the one history that every reader resumes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import msgspec

from jupyter_mntrain.model.metrics import JournalLine, Sample, encoder, journal_decoder

READ_BYTES = 1 << 18
"""Per read: large enough for hundreds of lines, small enough not to hold the event loop."""

MARK_EVERY = 1024
"""Lines between remembered positions: days of samples cost a few kilobytes of memory."""


class Journal:
    """Append-only NDJSON; the Nth line of the file has the number N.

    Opening one again finds the last number. A torn last line, left by a crash, is cut off.

    Args:
        path: the file; created if missing.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._marks: list[int] = []
        """Where lines 1, 1 + MARK_EVERY, 1 + 2 MARK_EVERY, … begin."""
        self.last_seq = 0
        self.size = 0
        self.grown = asyncio.Event()
        self._recover()

    def append(
        self, body: Sample, *, attempt: int, source: str | None = None, offset: int | None = None
    ) -> None:
        """Number a sample and keep it.

        Raises:
            OSError: it could not be written whole; then nothing of it is in the journal.
        """
        line = JournalLine(
            seq=self.last_seq + 1, attempt=attempt, body=body, source=source, offset=offset
        )
        encoded = encoder.encode(line) + b"\n"
        if os.write(self._file, encoded) < len(encoded):
            os.truncate(self._file, self.size)
            raise OSError("the disk is full")
        self._count(encoded)
        # Wake whoever waits, and give the next wait a fresh event.
        self.grown.set()
        self.grown = asyncio.Event()

    def position_after(self, seq: int) -> int:
        """Where the line after number ``seq`` begins, or will once it comes."""
        if seq >= self.last_seq:
            return self.size
        mark, rest = divmod(max(0, seq), MARK_EVERY)
        with self._path.open("rb") as file:
            file.seek(self._marks[mark])
            return self._marks[mark] + sum(len(line) for line in islice(file, rest))

    def read(self, position: int = 0) -> Iterator[bytes]:
        """Whole lines from ``position`` on, in blocks; the next begins where one ends."""
        with self._path.open("rb") as file:
            file.seek(position)
            while lines := file.readlines(READ_BYTES):
                yield b"".join(lines)

    def offsets(self, attempt: int) -> dict[str, int]:
        """Source → bytes of it that are already here: where a restarted agent reads on."""
        found = {}
        for block in self.read():
            for line in block.splitlines():
                try:
                    entry = journal_decoder.decode(line)
                except msgspec.MsgspecError:
                    continue  # of a newer agent, or spoilt; numbers and sources go on behind it
                if entry.attempt == attempt and entry.source is not None:
                    found[entry.source] = entry.offset or 0
        return found

    def close(self) -> None:
        os.close(self._file)
        self.grown.set()

    def _count(self, line: bytes) -> None:
        if self.last_seq % MARK_EVERY == 0:
            self._marks.append(self.size)
        self.last_seq += 1
        self.size += len(line)

    def _recover(self) -> None:
        with self._path.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    os.truncate(self._file, self.size)
                    return
                self._count(line)
