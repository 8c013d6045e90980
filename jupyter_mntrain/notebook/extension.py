"""What one shell holds while the extension is loaded: clusters, views, completion."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jupyter_mntrain.cluster import Cluster
from jupyter_mntrain.notebook.completion import Completer
from jupyter_mntrain.notebook.display import Screen
from jupyter_mntrain.notebook.magics import MntrainMagics
from jupyter_mntrain.notebook.updater import Updater
from jupyter_mntrain.verbs import parse_line
from jupyter_mntrain.verbs.session import cluster_key

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


class Extension:
    """Owns one :class:`Cluster` per name and set of addresses, and the one updating thread.

    Args:
        environment: where ``MNTRAIN_CLUSTER`` and ``MNTRAIN_AGENTS`` are read.
    """

    def __init__(
        self, shell: InteractiveShell, environment: Mapping[str, str] = os.environ
    ) -> None:
        self.shell = shell
        self.screen = Screen(shell)
        self.updater = Updater(self.screen)
        self._environment = environment
        self._clusters: dict[tuple[str, tuple[str, ...]], Cluster] = {}
        self._lock = threading.Lock()
        self._completer = Completer(self)
        self._magics = MntrainMagics(shell, self)

    def load(self) -> None:
        """Look for nodes at once: by the time the next cell runs they are there."""
        self.shell.register_magics(self._magics)
        self.shell.Completer.custom_matchers.append(self._completer.match)
        atexit.register(self.close)
        cluster = self.cluster_of(parse_line(["nodes"]))
        self.screen.line(
            f"mntrain: looking for nodes of cluster {cluster.name!r}; '%mntrain nodes' shows them, "
            "'%mntrain --help' the rest"
        )

    def unload(self) -> None:
        self.close()
        atexit.unregister(self.close)
        matchers = self.shell.Completer.custom_matchers
        matchers[:] = [matcher for matcher in matchers if matcher != self._completer.match]
        manager = self.shell.magics_manager
        for kind in ("line", "cell"):
            manager.magics[kind].pop("mntrain", None)
        manager.registry.pop(type(self._magics).__name__, None)

    def close(self) -> None:
        self.updater.close()
        with self._lock:
            clusters, self._clusters = list(self._clusters.values()), {}
        for cluster in clusters:
            cluster.close()

    def cluster_of(self, arguments: Any) -> Cluster:
        """The cluster a line means; watched from its first use on."""
        name, agents = cluster_key(arguments, self._environment)
        with self._lock:
            if (name, agents) not in self._clusters:
                self._clusters[name, agents] = Cluster(name, addresses=agents)
            return self._clusters[name, agents]

    def clusters(self) -> list[Cluster]:
        """Every cluster in use; nothing is connected by asking."""
        with self._lock:
            return list(self._clusters.values())
