"""Tab completion in notebooks, with the names that open clusters know."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

from jupyter_mntrain.model.whereabouts import current_folder
from jupyter_mntrain.verbs.completion import Completer, KnownJob, KnownNode
from jupyter_mntrain.verbs.known_names import jobs_of, nodes_of
from jupyter_mntrain.verbs.verb import Clusters


class OpenClusters:
    """The names that this kernel's clusters know by now."""

    def __init__(self, clusters: Clusters) -> None:
        self._clusters = clusters

    def clusters(self) -> Iterator[str]:
        return (cluster.name for cluster in self._clusters.opened())

    def nodes(self) -> Iterator[KnownNode]:
        return chain.from_iterable(map(nodes_of, self._clusters.opened()))

    def jobs(self) -> Iterator[KnownJob]:
        return chain.from_iterable(map(jobs_of, self._clusters.opened()))


class LineCompleter:
    """Completes a line that begins with ``%mntrain``."""

    def __init__(self, clusters: Clusters, directory: Callable[[], Path] = current_folder) -> None:
        self._completer = Completer(OpenClusters(clusters), directory)

    def complete(self, line: str) -> tuple[str, list[str]]:
        """Return the word at the cursor and its completions.

        Args:
            line: from after the magic's name up to the cursor.
        """
        words = line.split()
        begun = "" if not words or line[-1].isspace() else words.pop()
        return begun, self._completer.complete(words, begun)
