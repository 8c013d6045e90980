"""Quiet end: finds the exceptions of ranks that exited with code 0 all the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from jupyter_mntrain.agent.doubts.last_traceback import last_traceback
from jupyter_mntrain.agent.failure.printed import (
    DETAIL_LINES,
    LINE_LIMIT,
    LOG_TAIL_BYTES,
    output_of,
)
from jupyter_mntrain.model.failure.fixes import fix_of
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import Rank


class QuietEnd:
    """Watches the log and the reports of one attempt's ranks on one node.

    Args:
        log: the attempt's, with the output of all ranks.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        self._size = 0
        self._begins: dict[Rank, int] = {}
        self._messages: dict[Rank, str] = {}

    def look(self, stepped: Iterable[Rank]) -> None:
        """Note that ranks have finished a step since the last look.

        What they printed before that look, they went on from.
        """
        self._begins.update(dict.fromkeys(stepped, self._size))
        self._size = self._log.stat().st_size if self._log.exists() else 0

    def failed(self, rank: Rank, message: str) -> None:
        """Note that a rank's recorder saw an exception."""
        self._messages[rank] = message

    def warnings(self, ranks: Iterable[Rank]) -> Iterator[Problem]:
        """Warn of the first rank that ended with an exception. All of them exited with code 0."""
        text, begin = self._tail()
        for rank in ranks:
            since = max(0, self._begins.get(rank, 0) - begin)
            found = last_traceback(output_of(rank, text[since:].decode(errors="replace")))
            if found is not None:
                yield _warning(rank, found.message, "\n".join(found.lines[-DETAIL_LINES:]))
            elif rank in self._messages:
                yield _warning(rank, self._messages[rank])

    def _tail(self) -> tuple[bytes, int]:
        """The end of the log, and its offset."""
        if not self._log.exists():
            return b"", 0
        begin = max(0, self._log.stat().st_size - LOG_TAIL_BYTES)
        with self._log.open("rb") as file:
            file.seek(begin)
            return file.read(), begin


def _warning(rank: Rank, message: str, detail: str = "") -> Problem:
    return Problem(
        kind=Kind.TRACEBACK,
        cause=f"printed a traceback and exited with code 0: {message[:LINE_LIMIT]}",
        fix=fix_of(Kind.TRACEBACK),
        rank=rank,
        detail=detail,
    )
