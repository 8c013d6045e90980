"""Context of a verb: its clusters, screen, environment and clock."""

from __future__ import annotations

import os
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_mntrain.cluster.default import default_cluster
from jupyter_mntrain.model.environment import ALLOCATION_VARIABLE
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.whereabouts import current_folder, in_home
from jupyter_mntrain.show.screen import Screen

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Cluster


class Clusters:
    """Keeps one open :class:`Cluster` per name and typed-in addresses.

    Args:
        connect: opens a cluster; :class:`jupyter_mntrain.cluster.Cluster` itself.
    """

    def __init__(self, connect: Callable[[str, tuple[str, ...]], Cluster]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._open: dict[tuple[str, tuple[str, ...]], Cluster] = {}

    def get(self, name: str, addresses: tuple[str, ...]) -> Cluster:
        """Return the open cluster; open it if necessary."""
        key = (name, tuple(sorted(set(addresses))))
        with self._lock:
            if key not in self._open:
                self._open[key] = self._connect(*key)
            return self._open[key]

    def opened(self) -> tuple[Cluster, ...]:
        """Return the clusters that are open already, for completion."""
        with self._lock:
            return tuple(self._open.values())

    def close(self) -> None:
        with self._lock:
            clusters = tuple(self._open.values())
            self._open.clear()
        for cluster in clusters:
            cluster.close()


def connect(name: str, addresses: tuple[str, ...]) -> Cluster:
    from jupyter_mntrain.cluster import Cluster
    from jupyter_mntrain.sources.allocation_book import follow_remembered

    cluster = Cluster(name, addresses=addresses)
    follow_remembered(cluster)
    return cluster


@dataclass(frozen=True, slots=True)
class Context:
    """What a verb runs with.

    Args:
        program: the word that users type, ``mntrain`` or ``%mntrain``: for hints.
        cell: the cell below ``%%mntrain``.
        arguments: the words after ``--``.
        clock: Unix time.
        sleep: waits this many seconds.
    """

    clusters: Clusters
    screen: Screen
    program: str = "mntrain"
    cell: str | None = None
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    directory: Path = field(default_factory=current_folder)
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep

    def cluster(self, args: Namespace) -> Cluster:
        """Return the cluster named by the options, else by the environment."""
        name, agents = default_cluster(self.environment)
        cluster = self.clusters.get(args.cluster or name, tuple(args.agent or agents))
        told = getattr(args, "allocation", None) or self.environment.get(ALLOCATION_VARIABLE)
        if told:
            directory = self.directory / in_home(told)
            if not directory.is_dir():
                raise SpecError(
                    f"{told}: no such allocation directory",
                    fix="name the one that its agents write to, on a disk that is shared with them",
                )
            cluster.discovery.follow(directory)
        return cluster
