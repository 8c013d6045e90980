"""Logged job: reads what a job's ranks print, on all of its nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence

from jupyter_mntrain.cluster.handle.labeled_job import LabeledJob
from jupyter_mntrain.cluster.history.logs import LogLine, LogSource, tail_log
from jupyter_mntrain.cluster.history.placements import placements_with
from jupyter_mntrain.cluster.history.whole_logs import LogReader, LogSearch, merge, merged
from jupyter_mntrain.model.errors import MntrainError, bad_argument
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.job import Placement


class LoggedJob(LabeledJob):
    """The part of a job's handle that reads logs, those of its newest attempt."""

    id: JobId

    def logs(
        self, *, rank: int | None = None, node: str | None = None, tail: int = 200
    ) -> tuple[LogLine, ...]:
        """The last lines, of all nodes together and in order of time.

        A node that does not answer adds one line at the end that says so.

        Args:
            rank: only lines of this global rank.
            node: only this node, by name or id.
            tail: number of lines.

        Raises:
            SpecError: the job has no such rank or node, or ``tail`` is negative.
        """
        if tail < 0:
            raise bad_argument("tail", tail, "a number of lines, 0 or more")
        sources = self._sources(rank, node)
        return self._driver.loop.run(_last_lines(sources, rank, tail))

    def whole_log(
        self, *, rank: int | None = None, node: str | None = None
    ) -> Generator[list[LogLine], None, None]:
        """All lines that the nodes have kept, in order of time, a piece at a time: of any length.

        A node that does not answer, or no longer, adds one line that says so.

        Raises:
            SpecError: the job has no such rank or node.
        """
        readers = [LogReader(source, rank=rank) for source in self._sources(rank, node)]
        pieces = merged([reader.pieces_or_trouble() for reader in readers])

        async def following() -> list[LogLine] | None:
            return await anext(pieces, None)

        def read() -> Generator[list[LogLine], None, None]:
            try:
                while (piece := self._driver.loop.run(following())) is not None:
                    yield piece
            finally:
                self._driver.loop.run(pieces.aclose())

        return read()

    def log_search(
        self, text: str, *, rank: int | None = None, node: str | None = None, most: int
    ) -> LogSearch:
        """A search for the newest lines that contain a text, in all that the nodes have kept.

        Raises:
            SpecError: the job has no such rank or node.
        """
        return LogSearch(self._sources(rank, node), text, rank=rank, most=most)

    def search_log(self, search: LogSearch) -> list[LogLine]:
        """Run a search of :meth:`log_search`, or go on with it."""
        return self._driver.loop.run(search.find())

    def _sources(self, rank: int | None, node: str | None) -> list[LogSource]:
        return [self._source(placement) for placement in placements_with(self.view(), rank, node)]

    def _source(self, placement: Placement) -> LogSource:
        client = self._driver.live.client_of(placement)
        return LogSource(
            node=placement.node,
            read=lambda offset, limit: client.log(self.id, offset, limit),
            times=lambda begin, end: client.log_times(self.id, begin, end),
        )


async def _last_lines(
    sources: Sequence[LogSource], rank: int | None, tail: int
) -> tuple[LogLine, ...]:
    async def read(source: LogSource) -> list[LogLine] | LogLine:
        try:
            return await tail_log(source, rank=rank, tail=tail)
        except MntrainError as error:
            return LogReader(source).trouble(error)

    found = await asyncio.gather(*map(read, sources))
    lines = merge([one for one in found if isinstance(one, list)])
    troubles = [one for one in found if isinstance(one, LogLine)]
    return (*lines[len(lines) - min(tail, len(lines)) :], *troubles)
