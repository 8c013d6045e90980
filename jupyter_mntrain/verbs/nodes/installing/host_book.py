"""Host book: remembers the machines that were installed through ssh, for the next upgrade."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from jupyter_mntrain.model.whereabouts import kept_folder
from jupyter_mntrain.trust.shared_file import SharedFile
from jupyter_mntrain.verbs.nodes.installing.target import SshTarget


class HostBook:
    """A file of machines by cluster and node name, mode 0600. Several programs may share it.

    Args:
        path: default: ``installed.json`` in the user's configuration directory.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or kept_folder("config") / "installed.json"
        self._file = SharedFile(
            self.path, dict[str, dict[str, SshTarget]], what="the machines that were installed"
        )

    def all(self, cluster: str) -> list[SshTarget]:
        """Return the machines of a cluster, ordered by node name.

        Raises:
            SpecError: the file was damaged.
        """
        known = self._file.read().get(cluster, {})
        return list(dict.fromkeys(target for _, target in sorted(known.items())))

    def change(
        self, cluster: str, made: Iterable[tuple[str, SshTarget]], gone: Collection[SshTarget]
    ) -> None:
        """Add machines by node name, and drop those that are no longer nodes."""
        with self._file.locked():
            known = self._file.read()
            kept = {node: one for node, one in known.get(cluster, {}).items() if one not in gone}
            nodes = {**kept, **dict(made)}
            if nodes != known.get(cluster, {}):
                self._file.write({**known, cluster: nodes})
