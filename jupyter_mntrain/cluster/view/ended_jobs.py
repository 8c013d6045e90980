"""Ended jobs: lists them from all nodes, merged from the pages that each node returns."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from jupyter_mntrain.cluster.view.cluster_view import ClusterView
from jupyter_mntrain.cluster.view.job_ledger import JobLedger, Missing
from jupyter_mntrain.cluster.view.record_search import MOST_AT_ONCE, all_pages
from jupyter_mntrain.model.errors import JobNotFoundError, MntrainError
from jupyter_mntrain.model.ids import JobId, NodeId
from jupyter_mntrain.model.lifecycle.listing import JobQuery
from jupyter_mntrain.model.lifecycle.running_changes import changes_of, with_changes
from jupyter_mntrain.model.records.job import JobRecord, JobSpec, JobView


async def listed_jobs(live: ClusterView, query: JobQuery) -> tuple[JobView, ...]:
    """Return all live jobs of reachable nodes, and the ended ones that match a query.

    A node that does not answer meanwhile adds nothing; the live view shows why.
    """
    ledger = JobLedger(live.clock)
    nodes = live.reachable
    ledger.set_reachable(nodes)
    slots = asyncio.Semaphore(MOST_AT_ONCE)

    async def read(node_id: NodeId) -> list[JobRecord] | None:
        client = live.client_at(node_id)
        if client is None:
            return None
        try:
            async with slots:
                return [record async for record in all_pages(client, query)]
        except MntrainError:
            return None

    answers = await asyncio.gather(*(read(info.node_id) for info in nodes))
    told = {
        info.node_id for info, records in zip(nodes, answers, strict=True) if records is not None
    }
    ledger.take(record for records in answers for record in records or ())
    is_whole = query == JobQuery()

    async def ask(one: Missing) -> None:
        job_id, node_id = one
        if job_id in live.jobs or (client := live.client_at(node_id)) is None:
            return None
        if is_whole and node_id in told:
            return ledger.lacks(*one)
        try:
            async with slots:
                record = await client.job(job_id)
        except JobNotFoundError:
            ledger.lacks(*one)
        except MntrainError:
            return None
        else:
            ledger.update(record)

    await asyncio.gather(*map(ask, ledger.missing))
    found = {view.job_id: view for view in ledger.views()}
    return tuple((found | live.jobs).values())


async def jobs_of_run(live: ClusterView, run: JobId) -> list[JobView]:
    """Return the jobs of a run that reachable nodes know."""
    known = await listed_jobs(live, JobQuery(run=run))
    return [view for view in known if view.run == run]


async def whole_spec(live: ClusterView, view: JobView) -> JobSpec:
    """Return a job's spec with its files and the changes of its running settings, from the first
    participant that answers.

    Raises:
        NodeError: none does.
        JobNotFoundError: none has it any longer.
    """
    failures: list[MntrainError] = []
    for place in view.attempt.placements:
        try:
            spec = await live.client_of(place).spec(view.job_id)
            return with_changes(spec, changes_of(view))
        except MntrainError as error:
            failures.append(error)
    raise _most_telling(failures)


def _most_telling(failures: Sequence[MntrainError]) -> MntrainError:
    """Return the error to raise: of a silent node if any, as that node may have the record."""
    silent = [one for one in failures if not isinstance(one, JobNotFoundError)]
    return (silent or failures)[0]
