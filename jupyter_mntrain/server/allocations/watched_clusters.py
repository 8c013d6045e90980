"""Watched clusters: the server's own, and those of allocations with jobs that pages show."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import chain, count
from typing import Any, NamedTuple

from jupyter_mntrain.cluster import Cluster, Job
from jupyter_mntrain.cluster.loop import ClosedError
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.lifecycle.listing import sorted_jobs
from jupyter_mntrain.model.records.job import JobSpec, JobView
from jupyter_mntrain.sources.allocation_book import AllocationBook, follow_remembered

MOST_WATCHED = 16
"""Maximum number of allocations whose jobs a server shows unasked: each is a cluster of its own,
with a thread and a look for its nodes."""


class _Opened(NamedTuple):
    """The cluster of an allocation, and a function that ends its notifications."""

    cluster: Cluster
    unsubscribe: Callable[[], None]

    def close(self) -> None:
        self.unsubscribe()
        self.cluster.close()


class WatchedClusters:
    """Opens a cluster for each allocation, and finds jobs in them by id alone.

    Once very many are open, one whose allocation has ended is closed for another; its jobs are
    still found by their ids. Safe from any thread.

    Args:
        own: the server's.
        tell: called after every change in any of them, in a thread of theirs.
        connect: opens another one, by its name.
    """

    def __init__(
        self,
        own: Cluster,
        tell: Callable[[], None],
        connect: Callable[[str], Cluster] = Cluster,
    ) -> None:
        self.own = own
        self._tell = tell
        self._connect = connect
        self._lock = threading.Lock()
        self._is_closed = False
        self._is_own_followed = False
        self._open: dict[str, _Opened] = {}
        self._asked: dict[str, int] = {}
        """When each open cluster was last used: a higher number is later."""
        self._numbers = count()
        self._over: set[str] = set()
        """Clusters whose allocation has ended, open or not."""
        self._unsubscribe_own = own.subscribe(tell)

    def open(self, name: str) -> Cluster:
        """Return the cluster of an allocation; block while it is opened.

        If very many are open, another is closed for it: preferably one whose allocation has ended,
        the one asked for longest ago.

        Raises:
            MntrainError: its keys are gone.
            ClosedError: nothing is watched any more.
        """
        with self._lock:
            return self._opened(name)

    def watch(self, name: str) -> None:
        """Open the cluster of an allocation, unless too many are open or watching has ended.

        One whose allocation has ended makes room for it.
        """
        with self._lock:
            has_room = len(self._open) < MOST_WATCHED or not self._over.isdisjoint(self._open)
            if not self._is_closed and (has_room or name in (*self._open, self.own.name)):
                self._opened(name)

    def end(self, name: str) -> None:
        """Note that an allocation has ended: its cluster may be closed to make room for another."""
        self._over.add(name)

    def find(self, text: str) -> Job:
        """Return a job by its id; open the cluster of its allocation if necessary.

        Raises:
            JobNotFoundError: no reachable node knows it.
        """
        note = AllocationBook().of_job(text)
        return (self.own if note is None else self.open(note.cluster)).job(text)

    def launch(self, before: JobId | None, spec: JobSpec, **how: Any) -> Job:
        """Launch a job, and remember its allocation for later lookups.

        Args:
            before: job in whose cluster it is launched; default: in the server's own.
            how: as for :meth:`Cluster.launch`.

        Raises:
            MntrainError: as :meth:`Cluster.launch`.
        """
        cluster = self.own if before is None else self.of_job(before)
        job = cluster.launch(spec, **how)
        with suppress(MntrainError):  # it runs all the same
            AllocationBook().launched(cluster.name, job.id)
        return job

    def of_job(self, job_id: JobId) -> Cluster:
        """Return the open cluster that knows a job, else the server's own. Contacts no node."""
        knows = (one for one in self._all if any(v.job_id == job_id for v in one.known_jobs()))
        return next(knows, self.own)

    def known_job(self, job_id: JobId) -> Job:
        """Return a job by its full id, without checking that any node knows it."""
        return self.of_job(job_id).known_job(job_id)

    def known_jobs(self) -> tuple[JobView, ...]:
        """Return the known jobs, newest first. Contacts no node."""
        if not self._others:
            return self.own.known_jobs()
        return tuple(sorted_jobs(chain(*(one.known_jobs() for one in self._all)), "started"))

    def jobs(self, **which: Any) -> tuple[JobView, ...]:
        """Return the jobs of all reachable nodes, as :meth:`jupyter_mntrain.Cluster.jobs` does.

        Those of the server's own cluster come first.
        """
        return tuple(chain(*(one.jobs(**which) for one in self._all)))

    def nodes_up(self) -> set[str]:
        """Return the ids of the nodes that answer."""
        views = chain(*(one.nodes() for one in self._all))
        return {one.info.node_id for one in views if one.info and one.liveness == "up"}

    def close(self) -> None:
        """Stop watching; no cluster is opened afterwards. Jobs continue."""
        with self._lock:
            self._is_closed = True
            self._unsubscribe_own()
            for one in self._open.values():
                one.close()
            self.own.close()

    def _opened(self, name: str) -> Cluster:
        if self._is_closed:
            raise ClosedError("closed")
        if name == self.own.name:
            if not self._is_own_followed:
                follow_remembered(self.own)
                self._is_own_followed = True
            return self.own
        if name not in self._open:
            opened = self._connected(name)
            while len(self._open) >= MOST_WATCHED:
                self._close_one()
            self._open[name] = opened
        self._asked[name] = next(self._numbers)
        return self._open[name].cluster

    def _connected(self, name: str) -> _Opened:
        cluster = self._connect(name)
        try:
            follow_remembered(cluster)
        except BaseException:
            cluster.close()
            raise
        return _Opened(cluster, cluster.subscribe(self._tell))

    def _close_one(self) -> None:
        over = [name for name in self._open if name in self._over]
        name = min(over or self._open, key=self._asked.__getitem__)
        # Nobody is led to it any more before it is closed.
        closing = self._open.pop(name)
        del self._asked[name]
        closing.close()
        self._tell()

    @property
    def _others(self) -> tuple[Cluster, ...]:
        return tuple(one.cluster for one in tuple(self._open.values()))

    @property
    def _all(self) -> tuple[Cluster, ...]:
        return (self.own, *self._others)
