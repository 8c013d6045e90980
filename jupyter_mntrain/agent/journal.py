"""A job's samples on this node, numbered, on disk: the one history that every reader resumes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from jupyter_mntrain.model.metrics import JournalLine, Sample, encoder, journal_decoder

READ_BYTES = 1 << 18
"""Per read: large enough for hundreds of lines, small enough not to hold the event loop."""


class Journal:
    """Append-only NDJSON. Opening one again finds the last number and how far sources were read.

    Args:
        path: the file; created if missing. A torn last line, left by a crash, is cut off.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._starts: list[int] = []
        self._size = 0
        self.offsets: dict[tuple[int, str], int] = {}
        """(attempt, source) → bytes of the source already here."""
        self.grown = asyncio.Event()
        self._recover()

    @property
    def last_seq(self) -> int:
        return len(self._starts)

    def append(
        self, body: Sample, *, attempt: int, source: str | None = None, offset: int | None = None
    ) -> None:
        line = JournalLine(
            seq=self.last_seq + 1, attempt=attempt, body=body, source=source, offset=offset
        )
        encoded = encoder.encode(line) + b"\n"
        os.write(self._file, encoded)
        self._starts.append(self._size)
        self._size += len(encoded)
        if source is not None and offset is not None:
            self.offsets[attempt, source] = offset
        # Wake whoever waits, and give the next wait a fresh event.
        self.grown.set()
        self.grown = asyncio.Event()

    def read(self, since: int) -> Iterator[bytes]:
        """Whole lines with a number above ``since``, in blocks."""
        position = self._starts[since] if 0 <= since < self.last_seq else self._size
        while position < self._size:
            block = os.pread(self._file, READ_BYTES, position)
            whole = block[: block.rindex(b"\n") + 1] if b"\n" in block else block
            yield whole
            position += len(whole)

    def close(self) -> None:
        os.close(self._file)
        self.grown.set()

    def _recover(self) -> None:
        with self._path.open("rb") as lines:
            for line in lines:
                try:
                    entry = journal_decoder.decode(line)
                except msgspec.MsgspecError:
                    break
                if not line.endswith(b"\n"):
                    break
                self._starts.append(self._size)
                self._size += len(line)
                if entry.source is not None and entry.offset is not None:
                    self.offsets[entry.attempt, entry.source] = entry.offset
        os.truncate(self._file, self._size)
