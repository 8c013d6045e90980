"""Output of a cell: what the rank writes and shows, numbered, and kept for whoever asks again."""

from __future__ import annotations

import fcntl
import os
import select
import struct
import sys
import termios
import threading
import time
from codecs import getincrementaldecoder
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import groupby, islice
from typing import Final

import msgspec

from jupyter_mntrain.model.records.session import Done, Event, Lost, Text

KEPT_BYTES: Final = 16 * 2**20
"""Output that a rank keeps of a cell: when there is more, the oldest is dropped."""
EVENT_BYTES: Final = 160
"""What each event takes beside its text."""
PIECE_BYTES: Final = 64 * 2**10
DRAIN_S: Final = 0.5
"""How long the end of a cell waits for what was written to arrive."""


class CellOutput:
    """The events of one cell. Written by the rank, read by any number of threads."""

    def __init__(self, rank: int, cell: int) -> None:
        self.cell = cell
        self.done: Done | None = None
        self._rank = rank
        self._events: deque[tuple[int, Event, int]] = deque()
        """Number, event and size."""
        self._size = self._lost = self._lost_to = 0
        self._number = 0
        self._news = threading.Condition()

    def add(self, make: Callable[[int], Event], size: int) -> None:
        """Append an event.

        Args:
            make: is given its number.
            size: bytes of its content, about.
        """
        with self._news:
            if self.done is not None:
                return  # of a thread that outlived its cell
            self._number += 1
            event = make(self._number)
            self._events.append((self._number, event, size))
            self._size += size
            while self._takes_bytes > KEPT_BYTES and len(self._events) > 1:
                number, _, gone = self._events.popleft()
                self._size -= gone
                self._lost += gone
                self._lost_to = number
            if isinstance(event, Done):
                self.done = event
            self._news.notify_all()

    def text(self, text: str, *, is_error: bool) -> None:
        size = len(text) if text.isascii() else len(text.encode())
        self.add(lambda number: Text(self._rank, number, text, is_error), size)

    @property
    def _takes_bytes(self) -> int:
        return self._size + EVENT_BYTES * len(self._events)

    def after(self, number: int, wait_s: float) -> tuple[list[Event], bool]:
        """Return the events after a number, and whether the cell has ended with them.

        Args:
            wait_s: how long to wait for the first one.
        """
        with self._news:
            self._news.wait_for(lambda: self._number > number or self.done is not None, wait_s)
            found: list[Event] = []
            if self._lost_to > number:
                found.append(Lost(self._rank, self._lost_to, self._lost))
            count = min(self._number - number, len(self._events))
            newest = islice(reversed(self._events), max(0, count))
            found += reversed([event for _, event, _ in newest])
            return found, self.done is not None


class Capture:
    """Reads what the process and its children write to stdout and stderr.

    It is also written to where it went before: the job's log.
    """

    def __init__(self) -> None:
        self.output: CellOutput | None = None
        self._streams = [_Stream(1, self._take), _Stream(2, self._take)]

    def begin(self, output: CellOutput) -> None:
        """Let what is written from now on be that of a cell, whatever the last one has closed."""
        for stream in self._streams:
            stream.connect()
        self.output = output

    def end(self) -> None:
        """Wait for what was written so far."""
        self.flush()
        self.output = None

    def flush(self) -> None:
        """Wait for what was written so far, so that it comes before what is shown next."""
        for file in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):  # a cell has closed or replaced it
                file.flush()
        for stream in self._streams:
            stream.drain()

    def _take(self, text: str, is_error: bool) -> None:
        if self.output is not None:
            self.output.text(text, is_error=is_error)


class _Stream:
    """One of the two standard streams, as a pipe that a thread reads."""

    def __init__(self, number: int, take: Callable[[str, bool], None]) -> None:
        self._number, self._take = number, take
        self._log = os.dup(number)
        self._reads, self._writes = os.pipe()
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._is_reading = False
        self.connect()
        threading.Thread(target=self._read, name=f"output-{number}", daemon=True).start()

    def connect(self) -> None:
        os.dup2(self._writes, self._number)  # inheritable
        name = ("stdin", "stdout", "stderr")[self._number]
        if getattr(sys, name) is None or getattr(sys, name).closed:
            made = open(  # noqa: SIM115 - it takes the place of sys.stdout
                self._number, "w", encoding="utf-8", errors="backslashreplace", closefd=False
            )
            made.reconfigure(line_buffering=True)
            setattr(sys, name, made)

    def drain(self) -> None:
        until_s = time.monotonic() + DRAIN_S
        while time.monotonic() < until_s:
            waiting = struct.unpack("i", fcntl.ioctl(self._reads, termios.FIONREAD, b"\0" * 4))[0]
            if not waiting and not self._is_reading:
                return
            time.sleep(0.001)

    def _read(self) -> None:
        while piece := self._next():
            text = self._decoder.decode(piece)
            if text:
                self._take(text, self._number == 2)
            self._is_reading = False

    def _next(self) -> bytes:
        # Marked before it is taken: whoever looks in between sees one of the two.
        select.select([self._reads], [], [])
        self._is_reading = True
        piece = os.read(self._reads, PIECE_BYTES)
        with suppress(OSError):  # a full disk ends no cell
            os.write(self._log, piece)
        return piece


def pieces(events: Iterable[Event]) -> Iterator[Event]:
    """Join texts of one stream that follow each other."""
    for is_error, group in groupby(events, _stream_of):
        if is_error is None:
            yield from group
            continue
        texts = [one for one in group if isinstance(one, Text)]
        yield msgspec.structs.replace(texts[-1], text="".join(one.text for one in texts))


def _stream_of(event: Event) -> bool | None:
    return event.is_error if isinstance(event, Text) else None
