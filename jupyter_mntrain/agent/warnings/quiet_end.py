"""Quiet end: finds exceptions of ranks that nevertheless exited with code 0."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path

from jupyter_mntrain.agent.failure.foreign_messages import recognize
from jupyter_mntrain.agent.failure.printed import (
    DETAIL_LINES,
    LINE_LIMIT,
    LOG_TAIL_BYTES,
    TRACEBACK,
    output_of,
    with_place,
)
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.failure.fixes import fix_of
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.lifecycle.events import Warned, WarningOver

# Last traceback: whether a rank's output ends with an exception. Pure.
#
# A program may catch every exception, print it, and exit with code 0. A traceback that it printed
# and went on from is none of our business.


MOST_LINES_AFTER = 5
"""Most lines of output after a traceback at which a rank is taken to have ended with it, although
its exit code is 0: a program that says good-bye prints a line or two; one that goes on prints
more."""

_IGNORED = ("Exception ignored in", "Exception ignored on", "Exception ignored while")
"""What Python says of an exception in a destructor, at the end of many a good program."""
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(:.*)?$")
_NO_TEXT = re.compile(r"\s|$|frame #\d+|Exception raised from|\[[WIE]\d{3,4} ")
"""Lines that belong to what was said before, or that C++ libraries log while they end."""


class LastTraceback(Record, frozen=True):
    """The traceback at the end of a rank's output.

    Args:
        message: exception and, if known, the script's own line: ``ValueError: x (a.py, line 3)``.
        lines: all of it.
    """

    message: str
    lines: tuple[str, ...]


def last_traceback(lines: Sequence[str]) -> LastTraceback | None:
    """Find the traceback that a rank's output ends with; ``None`` if it ends with something else.

    Args:
        lines: output of one rank, without prefixes.
    """
    found: LastTraceback | None = None
    after = 0
    index = 0
    while index < len(lines):
        if lines[index] != TRACEBACK:
            after += not _NO_TEXT.match(lines[index])
            index += 1
            continue
        end = index + 1
        while end < len(lines) and lines[end][:1] in (" ", "\t"):
            end += 1
        is_ignored = index > 0 and lines[index - 1].startswith(_IGNORED)
        if is_ignored:
            after -= 1  # the line that says so
        elif end < len(lines) and _EXCEPTION.match(lines[end]):
            whole = tuple(lines[index : end + 1])
            message = with_place(whole[-1], "\n".join(whole))
            found, after = LastTraceback(message=message, lines=whole), 0
        index = end + 1
    return found if after <= MOST_LINES_AFTER else None


# Quiet end: finds the exceptions of ranks that exited with code 0 all the same, or have done
# nothing since they printed one, because a thread or a data loader's worker has died.


JobWarning = Warned | WarningOver

MOST_COMPARED = 200
"""Lines by which a rank's output is known to be the same as before."""

QUIET_S = 10.0
"""A rank whose output ends with a traceback has not gone on from it if it prints nothing, and
finishes no step, for so long: a data loader's worker or a thread has died, and it waits for it."""


class QuietEnd:
    """Watches the log and the reports of one attempt's ranks on one node.

    Args:
        log: the attempt's, with the output of all ranks.
        clock: monotonic seconds.
    """

    def __init__(self, log: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._next_s = 0.0
        self._looked_at = 0
        self._last: dict[Rank, list[str]] = {}
        """What ranks had printed at the last look, if that ends with a traceback."""
        self._warned: set[Rank] = set()
        self._size = 0
        self._begins: dict[Rank, int] = {}
        self._messages: dict[Rank, str] = {}

    def look(self, stepped: Iterable[Rank]) -> None:
        """Note the ranks that have finished a step since the last call.

        What they printed before that look, they went on from.
        """
        self._begins.update(dict.fromkeys(stepped, self._size))
        self._size = self._log.stat().st_size if self._log.exists() else 0

    def living(self, ranks: Iterable[Rank], stepped: Collection[Rank]) -> Iterator[JobWarning]:
        """Warn about ranks that have done nothing since they printed a traceback; call often.

        Args:
            stepped: those that have finished a step since the last call.
        """
        for rank in self._warned & set(stepped):
            yield self._over(rank)
        now_s = self._clock()
        if now_s < self._next_s or (self._size == self._looked_at and not self._last):
            return
        self._next_s, self._looked_at = now_s + QUIET_S, self._size
        before, self._last = self._last, {}
        for rank, lines, found in self._last_tracebacks(ranks):
            if found is None:
                if rank in self._warned:
                    yield self._over(rank)
                continue
            self._last[rank] = lines
            if rank not in self._warned and before.get(rank) == lines:
                self._warned.add(rank)
                yield Warned(problem=_of_living(rank, found))

    def _over(self, rank: Rank) -> WarningOver:
        self._warned.discard(rank)
        return WarningOver(kind=Kind.TRACEBACK, rank=rank)

    def failed(self, rank: Rank, message: str) -> None:
        """Note that a rank's recorder has seen an exception."""
        self._messages[rank] = message

    def warnings(self, ranks: Iterable[Rank]) -> Iterator[Problem]:
        """Warn about the first rank that ended with an exception. All have exited with code 0."""
        for rank, _, found in self._last_tracebacks(ranks):
            if found is not None:
                yield _warning(rank, found.message, "\n".join(found.lines[-DETAIL_LINES:]))
            elif rank in self._messages:
                yield _warning(rank, self._messages[rank])

    def _last_tracebacks(
        self, ranks: Iterable[Rank]
    ) -> Iterator[tuple[Rank, list[str], LastTraceback | None]]:
        """Yield what each rank printed since its last step, and the traceback at its end."""
        text, begin = self._tail()
        for rank in ranks:
            since = max(0, self._begins.get(rank, 0) - begin)
            lines = output_of(rank, text[since:].decode(errors="replace"))
            yield rank, lines[-MOST_COMPARED:], last_traceback(lines)

    def _tail(self) -> tuple[bytes, int]:
        """Return the end of the log, and its offset."""
        if not self._log.exists():
            return b"", 0
        begin = max(0, self._log.stat().st_size - LOG_TAIL_BYTES)
        with self._log.open("rb") as file:
            file.seek(begin)
            return file.read(), begin


def _of_living(rank: Rank, found: LastTraceback) -> Problem:
    known = recognize(found.message, "\n".join(found.lines))
    return Problem(
        kind=Kind.TRACEBACK,
        cause=f"printed a traceback and has done nothing since: {found.message[:LINE_LIMIT]}",
        fix=known.fix if known else fix_of(Kind.TRACEBACK, "living"),
        rank=rank,
        detail="\n".join(found.lines[-DETAIL_LINES:]),
    )


def _warning(rank: Rank, message: str, detail: str = "") -> Problem:
    return Problem(
        kind=Kind.TRACEBACK,
        cause=f"printed a traceback and exited with code 0: {message[:LINE_LIMIT]}",
        fix=fix_of(Kind.TRACEBACK),
        rank=rank,
        detail=detail,
    )
