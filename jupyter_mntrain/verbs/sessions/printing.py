"""Printing: what the ranks of a session write and show, as one text.

The first rank's text is printed as it comes. Line k of another rank is compared with line k of the
first: what is equal is printed once, what differs as ``[rank 1] line``. Results and figures are
compared likewise, by their text.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from jupyter_mntrain.model.quantities import numbered, size_text
from jupyter_mntrain.model.records.session import Done, Lost, Shown, Text
from jupyter_mntrain.model.text.foreign import visible
from jupyter_mntrain.show.screen import Screen

HELD_S: Final = 1.0
"""How long a line waits for the first rank's."""
LONGEST_LINE: Final = 1 << 20
"""Characters of a line that is held until it ends."""
SHOWN_KINDS: Final = (
    "text/html",
    "text/markdown",
    "text/latex",
    "image/svg+xml",
    "image/png",
    "image/jpeg",
    "image/gif",
    "text/plain",
)
"""What is shown of rich output. Widgets and scripts would speak with a kernel that is not here."""
WIDGET: Final = "application/vnd.jupyter.widget-view+json"


class _Held:
    """What a rank has written or shown that the first one has not, oldest first."""

    def __init__(self) -> None:
        self.count = 0
        self.left: deque[tuple[int, float, str]] = deque()

    def add(self, text: str, now_s: float) -> None:
        self.left.append((self.count, now_s, text))
        self.count += 1


class CellPrinter:
    """Prints the events of one cell.

    Args:
        ranks: that run it; the first one is printed whole.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        screen: Screen,
        ranks: Sequence[int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._screen, self._clock = screen, clock
        self._first = min(ranks)
        self._lines: list[str] = []
        self._results: list[str] = []
        self._partial = dict.fromkeys(ranks, "")
        self._written = {rank: _Held() for rank in ranks}
        self._shown = {rank: _Held() for rank in ranks}
        self._is_line_begun = False
        self._is_line_ended = False
        """Whether a line of the first rank was ended for it, so that something could be said."""
        self._has_ended = False
        self._said_widgets = False

    def text(self, event: Text) -> None:
        lines = (self._partial[event.rank] + event.text).split("\n")
        self._partial[event.rank] = lines.pop()[-LONGEST_LINE:]
        if event.rank == self._first:
            is_ended = self._is_line_ended and event.text.startswith("\n")
            self._write(event.text[is_ended:])
            self._is_line_ended = False
            self._lines += lines
        else:
            now_s = self._clock()
            for line in lines:
                self._written[event.rank].add(line, now_s)
        self._compare()

    def shown(self, event: Shown) -> None:
        data: dict[str, Any] = {
            kind: event.data[kind] for kind in SHOWN_KINDS if kind in event.data
        }
        plain = str(data.get("text/plain", ""))
        if event.rank != self._first:
            if data and not event.is_update:
                self._shown[event.rank].add(plain, self._clock())
            self._compare()
            return
        if event.clears:
            self._screen.clear()
        if WIDGET in event.data and not self._said_widgets:
            self._said_widgets = True
            self._say("widgets do not work in cells of a session: their text is shown")
        if data:
            self._end_line()
            self._screen.display(data, event.metadata, event.identity, is_update=event.is_update)
            if not event.is_update:
                self._results.append(plain)
        self._compare()

    def lost(self, event: Lost) -> None:
        size = size_text(event.size_bytes)
        self._say(f"rank {event.rank}: about {size} of output were dropped, more than is kept")

    def ended(self, event: Done) -> None:
        """Print what a rank has left, once its cell has ended."""
        if (left := self._partial.pop(event.rank, "")) and event.rank != self._first:
            self._written[event.rank].add(left, self._clock())
        elif left:
            self._lines.append(left)
        self._has_ended = self._has_ended or event.rank == self._first
        self._compare()

    def close(self) -> None:
        """Print what is still held."""
        self._has_ended = True
        self._compare()
        self._end_line()

    def say(self, text: str) -> None:
        """Print a line of our own."""
        self._say(text)

    def traceback(self, done: Done) -> None:
        self._end_line()
        self._write("".join(f"{line}\n" for line in done.traceback))

    def _compare(self) -> None:
        """Drop what equals the first rank's, print what differs, and keep what may still equal."""
        before_s = self._clock() - HELD_S
        for held, known in ((self._written, self._lines), (self._shown, self._results)):
            for rank, one in held.items():
                while one.left:
                    at, held_s, text = one.left[0]
                    is_known = at < len(known)
                    if not (is_known or self._has_ended or held_s < before_s):
                        break
                    one.left.popleft()
                    if not is_known or known[at] != text:
                        self._say_of(rank, text)

    def _say_of(self, rank: int, text: str) -> None:
        for line in text.split("\n"):
            self._say(f"[rank {rank}] {line}")

    def _say(self, text: str) -> None:
        self._end_line()
        self._write(text + "\n")

    def _end_line(self) -> None:
        if self._is_line_begun:
            self._write("\n")
            self._is_line_ended = True

    def _write(self, text: str) -> None:
        if text:
            # A progress bar goes back to the begin of its line; nothing else that moves is let out.
            pieces = text.split("\r")
            self._screen.write("\r".join(visible(one, keeps_color=True) for one in pieces))
            self._is_line_begun = not text.endswith("\n")


def failure_lines(failed: Mapping[int, Done]) -> list[str]:
    """Return a line for each error that differs from the first failing rank's.

    Args:
        failed: by rank; not empty.
    """
    first = failed[min(failed)]
    others: dict[tuple[Any, ...], list[int]] = {}
    for rank, one in sorted(failed.items()):
        others.setdefault((one.error, one.message, one.line), []).append(rank)
    same = others.pop((first.error, first.message, first.line))[1:]
    lines = [f"{numbered('rank', same)}: the same {first.error}"] if same else []
    for (error, message, line), ranks in others.items():
        place = f" in line {line}" if line is not None else ""
        lines.append(f"{numbered('rank', ranks)}: {error}{place}: {message}")
    return lines
