"""Addresses typed in once and remembered, per cluster: they work without multicast."""

from __future__ import annotations

from pathlib import Path

import platformdirs

from jupyter_mntrain.cluster.kept import KeptFile
from jupyter_mntrain.model._record import Record


class _Peers(Record, frozen=True):
    clusters: dict[str, tuple[str, ...]] = {}


class PeerBook:
    """``host:port`` per cluster in the user's configuration directory, mode 0600.

    Several kernels may use it at once.

    Args:
        path: instead of ``peers.json`` in the user's configuration directory.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or platformdirs.user_config_path("mntrain") / "peers.json"
        self._file = KeptFile(self.path, _Peers, what="the remembered nodes")

    def addresses(self, cluster: str) -> tuple[str, ...]:
        """What is remembered, in the order it was added.

        Raises:
            SpecError: the file is not ours or was damaged.
        """
        return self._file.read().clusters.get(cluster, ())

    def remember(self, cluster: str, address: str) -> None:
        """Add an address; once is enough."""
        with self._file.locked():
            known = self.addresses(cluster)
            if address not in known:
                self._write(cluster, (*known, address))

    def forget(self, cluster: str, address: str) -> bool:
        """Remove an address; ``False`` when it was not there."""
        with self._file.locked():
            known = self.addresses(cluster)
            if address not in known:
                return False
            self._write(cluster, tuple(one for one in known if one != address))
            return True

    def _write(self, cluster: str, addresses: tuple[str, ...]) -> None:
        clusters = self._file.read().clusters | {cluster: addresses}
        self._file.write(_Peers(clusters=clusters))
