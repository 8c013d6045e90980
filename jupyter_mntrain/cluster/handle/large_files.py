"""Large files: copies models and data sets to nodes and back, and lists what nodes store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from jupyter_mntrain.cluster.agents.client import ask_each
from jupyter_mntrain.cluster.files.job_files import (
    PulledFiles,
    WrittenFiles,
    fetch_job_files,
    read_job_file,
    refuse_existing,
)
from jupyter_mntrain.cluster.files.pushing import (
    FileSeat,
    Pushed,
    deposited,
    manifest_of,
    push_large,
)
from jupyter_mntrain.cluster.launch.sending import PARALLEL
from jupyter_mntrain.cluster.session import DriverSession
from jupyter_mntrain.launch.files.arriving import Arriving, alone
from jupyter_mntrain.launch.files.file_calls import FileCalls
from jupyter_mntrain.launch.files.manifest import check_manifest, transfer_of
from jupyter_mntrain.launch.files.names import LargeName, checked_large_name
from jupyter_mntrain.launch.files.records import (
    Cleaned,
    CleanRequest,
    Deposit,
    JobFiles,
    NodeSpace,
)
from jupyter_mntrain.launch.progress import SILENT, Count, Progress
from jupyter_mntrain.launch.retry import persist
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import MntrainError, SpecError
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.job import JobView
from jupyter_mntrain.plan.lookup import find_node

T = TypeVar("T")


class Pulled(Record, frozen=True):
    """The result of a pull."""

    name: str
    node: str
    path: str
    size_bytes: int
    took_s: float


class ClusterFiles:
    """Large files on a cluster's nodes, from :attr:`Cluster.files`. Safe from any thread."""

    def __init__(self, driver: DriverSession) -> None:
        self._driver = driver

    def push(
        self,
        name: LargeName,
        nodes: Sequence[str] = (),
        *,
        path: Path | None = None,
        source: str | None = None,
        progress: Progress = SILENT,
    ) -> Pushed:
        """Copy a file or folder to nodes, which also exchange pieces with one another.

        Args:
            name: what it is called on all nodes.
            nodes: default: all that answer.
            path: of it on this machine.
            source: the node that has it, instead of this machine.

        Raises:
            SpecError: there is no such thing, or no such node.
            RefusedError: a node has no room, or something else under that name.
            NodeError: a node does not answer.
        """
        checked_large_name(*name)
        seats = self._seats([*nodes, *([source] if source and nodes else [])], progress)
        giver = find_node(source, [one.info for one in seats]).name if source else None
        receivers = [one for one in seats if one.info.name != giver]
        holder = next((one for one in seats if one.info.name == giver), None)
        if not receivers:
            raise SpecError("there is no node to push to", fix="name one that 'nodes' lists")
        return self._driver.loop.run(
            push_large(name, path, holder, receivers, self._driver.clock, progress)
        )

    def pull(self, node: str, name: LargeName, to: Path, *, progress: Progress = SILENT) -> Pulled:
        """Fetch a file or folder from a node to this machine.

        Args:
            to: what it is called here; it must not exist.

        Raises:
            SpecError, RefusedError, NodeError: as for :meth:`push`.
        """
        checked_large_name(*name)
        refuse_existing(to)
        (seat,) = self._seats([node], progress)
        return self._driver.loop.run(self._pull(seat, name, to.absolute(), progress))

    def of_job(
        self,
        view: JobView,
        path: str = "",
        *,
        node: str | None = None,
        rank: int | None = None,
        progress: Progress = SILENT,
    ) -> WrittenFiles:
        """List what a job wrote on its nodes, without what was sent there; also while it runs.

        Args:
            path, node, rank: only what :meth:`pull_job` would fetch.

        Raises:
            SpecError: the job does not run on that node, or has no such rank.
        """
        seats = self._job_seats(view, node, rank)
        count = Count(progress, "looking for files", len(seats))
        asking = ask_each(seats, lambda calls: calls.job_files(view.job_id, path), count)
        told = dict(zip((one.node for one in seats), self._driver.loop.run(asking), strict=True))
        return WrittenFiles(
            nodes={name: one for name, one in told.items() if isinstance(one, JobFiles)},
            silent={
                name: one.problem for name, one in told.items() if isinstance(one, MntrainError)
            },
        )

    def pull_job(
        self,
        view: JobView,
        to: Path,
        path: str = "",
        *,
        node: str | None = None,
        rank: int | None = None,
        progress: Progress = SILENT,
    ) -> PulledFiles:
        """Fetch what a job wrote on all of its nodes into one file or folder, also while it runs.
        Resumes where it was cut off.

        Args:
            to: what it is called here; it must not exist.
            path: a file or folder in the one that the job runs in; default: all.
            node, rank: only what lies on this node, or on that of this rank.

        Raises:
            SpecError: the job does not run on that node, or has no such rank.
            RefusedError, NodeError: as for :func:`fetch_job_files`; or it is there already.
        """
        self._driver.refuse_read_only()
        refuse_existing(to)
        seats, begun_s = self._job_seats(view, node, rank), self._driver.clock.time()
        fetching = fetch_job_files(view.job_id, seats, path, to.absolute(), progress)
        pulled = self._driver.loop.run(fetching)
        return msgspec.structs.replace(pulled, took_s=self._driver.clock.time() - begun_s)

    def read_job_file(
        self, view: JobView, path: str, node: str
    ) -> tuple[int, Generator[bytes, None, None]]:
        """Return the size of a file that a job wrote, and its content piece by piece.

        Raises:
            SpecError, RefusedError, NodeError: as for :meth:`pull_job`; also while it is read.
        """
        self._driver.refuse_read_only()
        (seat,) = self._job_seats(view, node)
        size, pieces = self._driver.loop.run(read_job_file(view.job_id, seat, path))
        return size, self._driver.loop.iterate(pieces)

    def _job_seats(
        self, view: JobView, node: str | None = None, rank: int | None = None
    ) -> list[FileCalls]:
        places = [
            one
            for one in view.attempt.placements
            if node in (None, one.node, one.node_id) and (rank is None or rank in one.ranks)
        ]
        if not places:
            what = f"node {node}" if rank is None else f"rank {rank}"
            there = ", ".join(one.node for one in view.attempt.placements)
            cause = f"job {view.job_id} has no {what}"
            raise SpecError(cause, fix=f"it runs on {there}, with {view.attempt.world_size} ranks")
        return [FileCalls(self._driver.live.client_of(one)) for one in places]

    def space(
        self, nodes: Sequence[str] = (), *, progress: Progress = SILENT
    ) -> dict[str, NodeSpace | Problem]:
        """Return the large files on each node, by its name, or why it does not answer."""
        asked = self._seats(nodes, progress)
        return self._driver.loop.run(
            self._ask_all(asked, lambda calls: calls.space(), "measuring disks", progress)
        )

    def clean(
        self,
        names: Sequence[LargeName | JobId] = (),
        nodes: Sequence[str] = (),
        *,
        is_trial: bool = True,
        progress: Progress = SILENT,
    ) -> dict[str, Cleaned | Problem]:
        """Delete files that no job uses: of projects, of unfinished transfers, and those named.

        Args:
            names: models and data sets; or ended jobs, whose files go, and their records stay.
            is_trial: only say what would go.
        """
        request = CleanRequest(names=tuple(map(str, names)), is_trial=is_trial)
        asked = self._seats(nodes, progress)
        return self._driver.loop.run(
            self._ask_all(asked, lambda calls: calls.clean(request), "looking", progress)
        )

    def _seats(self, names: Sequence[str], progress: Progress) -> list[FileSeat]:
        self._driver.refuse_read_only()
        self._driver.search.wait_until_known(names, progress)
        self._driver.search.refuse_awaited(names)
        usable = self._driver.search.usable()
        infos = [find_node(name, usable) for name in names] if names else usable
        chosen = {info.node_id: info for info in infos}.values()
        return [FileSeat(one, FileCalls(self._driver.search.client(one.node_id))) for one in chosen]

    async def _pull(self, seat: FileSeat, name: LargeName, to: Path, progress: Progress) -> Pulled:
        begun_s = self._driver.clock.time()
        manifest = await manifest_of(seat.calls, name, progress)
        check_manifest(manifest)
        deposit = Deposit(root=name.root, name=name.name, manifest=manifest)
        await deposited(seat.calls, deposit, progress)
        transfer = transfer_of(name.root, name.name, manifest)
        arriving = Arriving(to, to.parent, transfer, manifest)
        with alone(arriving.folder, str(name)):
            await self._fetch(seat.calls, name, arriving, transfer, progress)
        took_s = self._driver.clock.time() - begun_s
        return Pulled(str(name), seat.info.name, str(to), manifest.size_bytes, took_s)

    async def _fetch(
        self,
        calls: FileCalls,
        name: LargeName,
        arriving: Arriving,
        transfer: str,
        progress: Progress,
    ) -> None:
        await asyncio.to_thread(arriving.prepare, f"{name}\n")
        missing = sorted(set(range(len(arriving.manifest.pieces))) - arriving.held)
        count = Count(progress, f"pulling {name}, pieces", len(missing))
        turns = asyncio.Semaphore(PARALLEL)

        async def fetch(piece: int) -> None:
            async with turns:
                content = await persist(lambda: calls.piece(transfer, piece))
                await asyncio.to_thread(arriving.write, piece, content)
            count.more()

        try:
            async with asyncio.TaskGroup() as group:
                for piece in missing:
                    group.create_task(fetch(piece))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        await asyncio.to_thread(arriving.sync)
        refuse_existing(arriving.goal)
        await asyncio.to_thread(arriving.place)

    async def _ask_all(
        self,
        seats: Sequence[FileSeat],
        ask: Callable[[FileCalls], Awaitable[T]],
        what: str,
        progress: Progress,
    ) -> dict[str, T | Problem]:
        count = Count(progress, what, len(seats))
        answers = await ask_each(seats, lambda seat: ask(seat.calls), count)
        return {
            seat.info.name: one.problem if isinstance(one, MntrainError) else one
            for seat, one in zip(seats, answers, strict=True)
        }
