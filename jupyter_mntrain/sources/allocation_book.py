"""Allocation book: remembers this user's allocations, and the jobs that run in them.

By it a job is found by its id alone: its cluster is one of its own, and its records lie in the
allocation's directory.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.sources.source import NodeSource, NodesRequest
from jupyter_mntrain.model.whereabouts import kept_folder
from jupyter_mntrain.sources.registry import source_named
from jupyter_mntrain.trust.shared_file import SharedFile

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Cluster

CLUSTERS = "clusters"
REMEMBERED = 100
"""Allocations that a driver remembers, with the keys of their clusters, to read their records."""


class AllocationNote(Record, frozen=True):
    """An allocation that was requested.

    Args:
        cluster: name of the cluster that its nodes form; also in the book.
        id: the source's own.
        directory: of its slots, if this machine reaches them.
        jobs: ids of those that were launched in it.
        is_used: whether its nodes have come to who asked for them without a launch, or keeps them:
            no launch waits for them.
    """

    cluster: str
    id: str
    request: NodesRequest
    directory: str = ""
    jobs: tuple[str, ...] = ()
    is_used: bool = False

    @property
    def has_begun(self) -> bool:
        """Whether something runs, or ran, on its nodes. It then waits only for nodes that were
        taken.
        """
        return bool(self.jobs) or self.is_used


class _Notes(Record, frozen=True):
    """Contents of the file.

    Args:
        allocations: the newest last.
        is_last: whether the newest launch of all was, or is to be, in the newest of them.
        was_last: the same before that one was asked for.
    """

    allocations: tuple[AllocationNote, ...] = ()
    is_last: bool = False
    was_last: bool = False


class AllocationBook:
    """The file ``allocations.json`` in the user's configuration directory. Several programs may use
    it.

    Args:
        folder: default: the user's configuration directory.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or kept_folder("config")
        path = self._folder / "allocations.json"
        self._file = SharedFile(path, _Notes, what="the remembered allocations")

    def of_cluster(self, name: str) -> AllocationNote | None:
        """Return the allocation whose nodes form a cluster."""
        return next((one for one in self.notes() if one.cluster == name), None)

    def of_job(self, text: str) -> AllocationNote | None:
        """Return the allocation in which a job was launched, by its id or the beginning of it.

        An older job whose id begins so, too, is not meant.
        """
        found = (
            one for one in self.notes() if any(job.startswith(text) for job in one.jobs if text)
        )
        return next(found, None)

    def of_last_launch(self) -> AllocationNote | None:
        """Return the allocation of the newest launch, started or not; ``None`` if it used none."""
        notes = self._file.read()
        return notes.allocations[-1] if notes.is_last and notes.allocations else None

    @property
    def has_other_clusters(self) -> bool:
        """Return whether this user has keys of a cluster that is not an allocation's."""
        own = {one.cluster for one in self.notes()}
        return any(path.name not in own for path in (self._folder / CLUSTERS).glob("*"))

    def add(self, note: AllocationNote) -> None:
        """Add an allocation. The oldest ones are forgotten, with the keys of their clusters."""

        def change(notes: _Notes) -> _Notes:
            known = (*notes.allocations, note)
            for one in known[:-REMEMBERED]:
                self._remove_keys(one.cluster)
            return _Notes(known[-REMEMBERED:], is_last=True, was_last=notes.is_last)

        self._change(change)

    def launched(self, cluster: str, job: str) -> None:
        """Record that a job was launched in a cluster, whether or not an allocation's."""
        if not self._file.path.exists():
            return

        def change(notes: _Notes) -> _Notes:
            known = [one for one in notes.allocations if one.cluster == cluster]
            others = [one for one in notes.allocations if one.cluster != cluster]
            known = [msgspec.structs.replace(one, jobs=(*one.jobs, job)) for one in known]
            return _Notes(allocations=(*others, *known), is_last=bool(known))

        self._change(change)

    def used(self, cluster: str) -> None:
        """Record that an allocation's nodes are in use other than by a launch."""

        def change(notes: _Notes) -> _Notes:
            known = (
                msgspec.structs.replace(one, is_used=True) if one.cluster == cluster else one
                for one in notes.allocations
            )
            return msgspec.structs.replace(notes, allocations=tuple(known))

        self._change(change)

    def forget(self, cluster: str) -> None:
        """Forget an allocation in which nothing was launched, and the keys of its cluster."""

        def change(notes: _Notes) -> _Notes:
            left = tuple(one for one in notes.allocations if one.cluster != cluster)
            was_newest = left != notes.allocations and left == notes.allocations[:-1]
            return _Notes(left, is_last=notes.was_last if was_newest else notes.is_last)

        self._change(change)
        self._remove_keys(cluster)

    def notes(self) -> tuple[AllocationNote, ...]:
        """Return all allocations on record, the newest first."""
        return self._file.read().allocations[::-1]

    def _change(self, change: Callable[[_Notes], _Notes]) -> None:
        with self._file.locked():
            self._file.write(change(self._file.read()))

    def _remove_keys(self, cluster: str) -> None:
        shutil.rmtree(self._folder / CLUSTERS / cluster, ignore_errors=True)


def follow_remembered(cluster: Cluster) -> None:
    """Have the driver of an allocation's cluster discover its nodes, and read the records they
    left.
    """
    note = AllocationBook().of_cluster(cluster.name)
    if note is None:
        return
    if note.directory:
        cluster.discovery.follow(Path(note.directory))
        return
    reach_slots(cluster, source_named(note.request.source), note.id, note.request)


def reach_slots(
    cluster: Cluster, source: NodeSource, allocation_id: str, request: NodesRequest
) -> None:
    """Keep looking for the allocation's agents at the addresses that the scheduler gives."""
    # Loaded with what drivers need.
    from jupyter_mntrain.cluster.discovery.slot_discovery import SlotAddresses

    class OfSource(SlotAddresses):
        async def ask(self) -> Mapping[str, str]:
            return await source.addresses(allocation_id, request)

        async def close(self) -> None:
            await source.close()

    cluster.discovery.reach(OfSource(allocation_id))
