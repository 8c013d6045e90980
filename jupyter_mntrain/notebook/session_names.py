"""Tab and Shift-Tab in cells of a session: asks one of its ranks what it knows of a name."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYetError
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from jupyter_mntrain.command_line.parser import HelpWanted
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.show.bundles import PROGRAM
from jupyter_mntrain.show.screen import CellTarget
from jupyter_mntrain.verbs.command import parse, split_line
from jupyter_mntrain.verbs.sessions.cell import CellVerb
from jupyter_mntrain.verbs.verb import Clusters

if TYPE_CHECKING:
    from jupyter_mntrain.cluster.rank_session import RankSession

T = TypeVar("T")

ANSWER_S: Final = 1.0
"""How long somebody who types is kept waiting; an answer that comes later is dropped."""
HEAD = re.compile(r"\A(?:\s*(?:#.*)?\n)*%%mntrain[ \t]+(?P<line>cell\b.*)\n")
MAGIC_LINE = re.compile(r"^\s*(?:[\w, ]+=\s*)?%{1,2}mntrain\s(?P<rest>.*)$")


def runs_on(target: CellTarget, lines: Sequence[str]) -> str:
    """Return the session on which a cell without a magic of its own runs; empty = in the kernel.

    Args:
        target: what ``session auto`` has named.
    """
    head = next((line for line in lines if line.strip()), "")
    return "" if not head or MAGIC_LINE.match(head) else target.session


@dataclass(frozen=True, slots=True)
class RemoteCell:
    """A cell that runs on ranks.

    Args:
        session: its job, or how the id begins; empty = the newest that runs.
        rank: the first that runs it.
        begin: where its code begins in the notebook's cell, in characters.
    """

    session: str
    rank: int
    begin: int


class SessionNames:
    """Answers for the ranks of sessions, or with nothing: it never raises, and never blocks for
    longer than ``ANSWER_S``.

    Args:
        target: where cells without a magic run.
    """

    def __init__(self, clusters: Clusters, target: CellTarget) -> None:
        self._clusters, self._target = clusters, target
        self._pool = ThreadPoolExecutor(1, "session-names")
        self._asked: Future[Any] | None = None

    def cell_at(self, text: str, position: int) -> RemoteCell | None:
        """Return what the cursor is in; ``None`` if that runs in the notebook's kernel."""
        head = HEAD.match(text)
        if head is None:
            session = runs_on(self._target, text.split("\n"))
            return RemoteCell(session, 0, 0) if session else None
        if position < head.end():
            return None
        try:
            command = parse(split_line(head["line"]), program=PROGRAM)
        except (MntrainError, HelpWanted):
            return None
        if not isinstance(command.verb, CellVerb):
            return None
        ranks = command.args.ranks or (0,)
        return RemoteCell(command.args.session or "", ranks[0], head.end())

    def complete(self, cell: RemoteCell, text: str, position: int) -> tuple[str, tuple[str, ...]]:
        """Return the text before the cursor that completions replace, and the completions."""
        code, at = text[cell.begin :], position - cell.begin
        found = self._ask(cell, lambda session: session.complete(code, at, rank=cell.rank))
        if found is None or not 0 <= found.begin <= at:
            return "", ()
        return code[found.begin : at], found.matches

    def inspect(
        self, cell: RemoteCell, text: str, position: int, detail: int
    ) -> dict[str, str] | None:
        """Return what the rank knows of the name at the cursor, by MIME type; empty if nothing."""
        code, at = text[cell.begin :], position - cell.begin
        found = self._ask(cell, lambda session: session.inspect(code, at, detail, cell.rank))
        return None if found is None else found.data

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _ask(self, cell: RemoteCell, ask: Callable[[RankSession], T | None]) -> T | None:
        if self._asked is not None and not self._asked.done():
            return None  # the cluster is away: what is typed next is not kept waiting again

        def work() -> T | None:
            session = self._session(cell.session)
            return None if session is None else ask(session)

        asked = self._pool.submit(work)
        self._asked = asked
        try:
            return asked.result(ANSWER_S)
        except (NotYetError, MntrainError):
            return None

    def _session(self, named: str) -> RankSession | None:
        for cluster in self._clusters.opened():
            for view in cluster.known_jobs():
                if view.runs_cells and view.job_id.startswith(named):
                    return cluster.known_job(view.job_id).session()
        return None
