"""Watched clusters: the server's own, and those of allocations whose jobs its pages show, too."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import chain
from typing import Any

from jupyter_mntrain.cluster import Cluster, Job
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.lifecycle.listing import sorted_jobs
from jupyter_mntrain.model.records.job import JobView
from jupyter_mntrain.sources.allocation_book import AllocationBook, follow_remembered

MOST_WATCHED = tunables.count("server.allocations_watched")


class WatchedClusters:
    """Each allocation is a cluster of its own; a job is found by its id alone.

    Safe from any thread.

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
        self._open: dict[str, Cluster] = {}
        self._unsubscribe = [own.subscribe(tell)]

    def open(self, name: str) -> Cluster:
        """The cluster of an allocation; blocks while it is opened.

        Raises:
            MntrainError: its keys are gone.
        """
        with self._lock:
            cluster = self._open.get(name)
            if cluster is None:
                cluster = self.own if name == self.own.name else self._connect(name)
                follow_remembered(cluster)
                self._open[name] = cluster
                if cluster is not self.own:
                    self._unsubscribe.append(cluster.subscribe(self._tell))
            return cluster

    def watch(self, name: str) -> None:
        """Open the cluster of an allocation unasked, unless very many are open."""
        if name in self._open or len(self._open) < MOST_WATCHED:
            self.open(name)

    def find(self, text: str) -> Job:
        """A job by its id; opens the cluster of its allocation.

        Raises:
            JobNotFoundError: no reachable node knows it.
        """
        note = AllocationBook().of_job(text)
        return (self.own if note is None else self.open(note.cluster)).job(text)

    def of_job(self, job_id: JobId) -> Cluster:
        """The open cluster that knows a job, else the server's own. Contacts no node."""
        knows = (one for one in self._all if any(v.job_id == job_id for v in one.known_jobs()))
        return next(knows, self.own)

    def known_job(self, job_id: JobId) -> Job:
        """A job by its full id, without a check that any node knows it."""
        return self.of_job(job_id).known_job(job_id)

    def known_jobs(self) -> tuple[JobView, ...]:
        """The jobs that have been heard of, newest first. Contacts no node."""
        if not self._others:
            return self.own.known_jobs()
        return tuple(sorted_jobs(chain(*(one.known_jobs() for one in self._all)), "started"))

    def jobs(self, **which: Any) -> tuple[JobView, ...]:
        """The jobs of all reachable nodes, as :meth:`jupyter_mntrain.Cluster.jobs` lists them.

        Those of the server's own cluster come first.
        """
        return tuple(chain(*(one.jobs(**which) for one in self._all)))

    def nodes_up(self) -> set[str]:
        """Ids of the nodes that answer."""
        views = chain(*(one.nodes() for one in self._all))
        return {one.info.node_id for one in views if one.info and one.liveness == "up"}

    def close(self) -> None:
        """Stop watching. Jobs continue."""
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        for cluster in self._all:
            cluster.close()

    @property
    def _others(self) -> tuple[Cluster, ...]:
        return tuple(one for one in tuple(self._open.values()) if one is not self.own)

    @property
    def _all(self) -> tuple[Cluster, ...]:
        return (self.own, *self._others)
