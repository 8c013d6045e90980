"""Record search: asks nodes for the ended jobs, which their streams do not report."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from jupyter_mntrain.cluster.agents.client import AgentClient
from jupyter_mntrain.cluster.loop import end_tasks
from jupyter_mntrain.cluster.view.job_ledger import JobLedger, Missing
from jupyter_mntrain.launch.retry import persist
from jupyter_mntrain.model.errors import JobNotFoundError, MntrainError
from jupyter_mntrain.model.ids import JobId, NodeId
from jupyter_mntrain.model.lifecycle.listing import RECENT, JobPage, JobQuery
from jupyter_mntrain.model.records.job import JobRecord

MOST_AT_ONCE = 8
"""Requests to all nodes together: a driver of many nodes must not choke on its own questions."""

ClientOf = Callable[[NodeId], AgentClient | None]


@dataclass(eq=False)
class RecordSearch:
    """Asks nodes for records, and stores them in a ledger. Runs on one event loop.

    Args:
        client_of: a client for a node that answers; ``None`` if it does not.
        on_news: called after the ledger has changed, and when a question has been answered.
    """

    ledger: JobLedger
    client_of: ClientOf
    on_news: Callable[[], None]
    _begins: set[str] = field(default_factory=set)
    """Beginnings of ids that nodes are asked for as soon as they are heard."""
    _hearing: set[NodeId] = field(default_factory=set)
    _asking: set[Missing] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST_AT_ONCE))

    @property
    def is_busy(self) -> bool:
        """Whether a node that has been heard has not reported its newest ended jobs yet."""
        return bool(self._hearing)

    def heard(self, node_id: NodeId) -> None:
        """Ask a node, whose stream has begun, for its newest ended jobs and those searched for."""
        self._hearing.add(node_id)
        self._do(self._hear(node_id))

    def look(self) -> None:
        """Ask for the records that the ledger misses. Call often."""
        for one in self.ledger.missing:
            if one not in self._asking:
                self._asking.add(one)
                self._do(self._fetch(*one))

    async def find(self, begins: str, nodes: Iterable[NodeId]) -> None:
        """Ask these nodes for jobs whose id begins so, and other nodes once they are heard."""
        self._begins.add(begins)
        query = JobQuery(begins=begins)
        await asyncio.gather(*(self._take(node_id, query) for node_id in nodes))

    async def close(self) -> None:
        await end_tasks(self._tasks)

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _hear(self, node_id: NodeId) -> None:
        try:
            if (client := self.client_of(node_id)) is not None:
                page = await self._page(client, JobQuery(limit=RECENT))
                self.ledger.confirm(node_id, page.records, is_all=page.next is None)
            for begins in tuple(self._begins):
                await self._take(node_id, JobQuery(begins=begins))
        except MntrainError:
            pass  # the live view shows why the node does not answer; its next stream asks again
        finally:
            self._hearing.discard(node_id)
            self.on_news()

    async def _take(self, node_id: NodeId, query: JobQuery) -> None:
        try:
            if (client := self.client_of(node_id)) is not None:
                async with self._slots:
                    async for record in all_pages(client, query):
                        self.ledger.update(record)
        except MntrainError:
            pass  # as above
        self.on_news()

    async def _fetch(self, job_id: JobId, node_id: NodeId) -> None:
        try:
            if (client := self.client_of(node_id)) is None:
                return
            async with self._slots:
                record = await persist(lambda: client.job(job_id))
            if (record.job_id, record.part.node_id) == (job_id, node_id):
                self.ledger.update(record)
            else:
                self.ledger.lacks(job_id, node_id)
        except JobNotFoundError:
            self.ledger.lacks(job_id, node_id)
        except MntrainError:
            return  # as above; look() asks again
        finally:
            self._asking.discard((job_id, node_id))
        self.on_news()

    async def _page(self, client: AgentClient, query: JobQuery) -> JobPage:
        async with self._slots:
            return await persist(lambda: client.jobs(query))


async def all_pages(client: AgentClient, query: JobQuery) -> AsyncIterator[JobRecord]:
    """Yield all ended jobs of a node that match a query, newest first.

    Raises:
        MntrainError: the node does not answer, or refuses.
    """
    after: str | None = query.after
    while after is not None:
        asked = msgspec.structs.replace(query, after=after)
        page = await persist(lambda asked=asked: client.jobs(asked))  # type: ignore[misc]
        for record in page.records:
            yield record
        after = page.next
