"""Known names: nodes and jobs seen by earlier commands, for the shell's completion.

A shell asks a new process at each press of Tab, which has no time to ask a cluster. Each command
leaves what it has heard in a file of the user's cache. What is gone meanwhile may be offered still.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.whereabouts import kept_folder
from jupyter_mntrain.verbs.completion import KnownJob, KnownNode

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Cluster

MOST_JOBS: Final = 200
"""Newest jobs kept per cluster: a terminal shows no more."""


class KeptNames:
    """The names of a cluster that earlier commands stored; none if they cannot be read."""

    def __init__(self, cluster: str) -> None:
        self._data = _read(cluster)

    def clusters(self) -> Iterable[str]:
        with suppress(OSError, MntrainError):
            return sorted(one.name for one in (kept_folder("config") / "clusters").iterdir())
        return ()

    def nodes(self) -> Iterable[KnownNode]:
        for name, address, gpus, interfaces in self._data.get("nodes", ()):
            yield KnownNode(name, address, tuple(gpus), tuple(interfaces))

    def jobs(self) -> Iterable[KnownJob]:
        for job_id, has_ended in self._data.get("jobs", ()):
            yield KnownJob(job_id, has_ended)


def nodes_of(cluster: Cluster) -> Iterable[KnownNode]:
    """Return the nodes that an open cluster knows by now. Contacts none."""
    for node in cluster.nodes():
        if node.info is None:
            yield KnownNode(node.name, node.address)
            continue
        inventory = node.info.inventory
        used = (one.name for one in inventory.interfaces if one.is_up and one.addresses)
        gpus = tuple(one.index for one in inventory.gpus)
        yield KnownNode(node.name, node.address, gpus, tuple(used))


def jobs_of(cluster: Cluster) -> Iterable[KnownJob]:
    """Return the jobs that an open cluster knows by now, newest first. Contacts no node."""
    from jupyter_mntrain.model.records.job import TERMINAL

    for job in cluster.known_jobs():
        yield KnownJob(job.job_id, job.state in TERMINAL)


def keep_names(cluster: Cluster) -> None:
    """Store the names that a cluster knows by now, for completion; errors are ignored."""
    with suppress(OSError, MntrainError):
        before = _read(cluster.name)
        nodes = list(nodes_of(cluster)) or before.get("nodes", [])
        jobs = {one.job_id: one for one in jobs_of(cluster)}
        older = (KnownJob(*one) for one in before.get("jobs", ()))
        jobs |= {one.job_id: one for one in older if one.job_id not in jobs}
        data = {"nodes": nodes, "jobs": list(jobs.values())[:MOST_JOBS]}
        if data == before or not (nodes or jobs):
            return
        path = _path(cluster.name)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        new = path.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps(data), encoding="utf-8")
        new.replace(path)


def _path(cluster: str) -> Path:
    return kept_folder("cache") / "names" / f"{cluster}.json"


def _read(cluster: str) -> dict[str, Any]:
    with suppress(OSError, ValueError, MntrainError):
        data = json.loads(_path(cluster).read_text(encoding="utf-8"))
        if isinstance(data, dict):
            return data
    return {}
