"""Peer book: remembers nodes that were typed in or seen, so that missing ones can be named."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from jupyter_mntrain.cluster.view.agent_watch import Clock
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.ids import NodeId
from jupyter_mntrain.model.records.node import NodeInfo
from jupyter_mntrain.model.whereabouts import kept_folder
from jupyter_mntrain.trust.shared_file import SharedFile

KEPT_S = tunables.seconds("cluster.peer_remembered_s")

SEEN_AGAIN_S = 3600.0
"""Interval of writing down when a node that keeps answering was last seen."""


class SeenNode(Record, frozen=True):
    """A node that has answered as a member of the cluster.

    Args:
        addresses: ``host:port``, as the node reported.
        seen_s: Unix time.
    """

    node_id: NodeId
    name: str
    addresses: tuple[str, ...]
    seen_s: float


class _Peers(Record, frozen=True):
    clusters: dict[str, tuple[str, ...]] = {}
    seen: dict[str, tuple[SeenNode, ...]] = {}


class PeerBook:
    """Known addresses per cluster, in the user's configuration directory with mode 0600.

    Several kernels may use it at once.

    Args:
        path: default: ``peers.json`` in the user's configuration directory.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or kept_folder("config") / "peers.json"
        self._file = SharedFile(self.path, _Peers, what="the remembered nodes")

    def addresses(self, cluster: str) -> tuple[str, ...]:
        """Return the remembered addresses, in the order in which they were added.

        Raises:
            SpecError: the file is not ours or was damaged.
        """
        return self._file.read().clusters.get(cluster, ())

    def remember(self, cluster: str, address: str) -> None:
        """Add an address. Idempotent."""
        with self._file.locked():
            known = self.addresses(cluster)
            if address not in known:
                self._write(cluster, (*known, address))

    def forget(self, cluster: str, address: str) -> bool:
        """Remove an address; ``False`` if it was not stored."""
        with self._file.locked():
            known = self.addresses(cluster)
            if address not in known:
                return False
            self._write(cluster, tuple(one for one in known if one != address))
            return True

    def seen(self, cluster: str, now_s: float) -> tuple[SeenNode, ...]:
        """Return the nodes that answered within the last month.

        Raises:
            SpecError: the file is not ours or was damaged.
        """
        known = self._file.read().seen.get(cluster, ())
        return tuple(node for node in known if now_s - node.seen_s < KEPT_S)

    def was_seen(self, cluster: str, node: SeenNode) -> None:
        """Store a node, unless it was stored within the last hour."""
        if self._is_known(cluster, node):
            return
        with self._file.locked():
            others = [one for one in self.seen(cluster, node.seen_s) if one.node_id != node.node_id]
            self._write_seen(cluster, (*others, node))

    def has_answered(self, cluster: str, clock: Clock, info: NodeInfo) -> None:
        """Store a node that answered. Called in a driver's thread."""
        node = SeenNode(info.node_id, info.name, info.addresses, clock.time())
        # A full disk must not end the watching of nodes.
        with suppress(OSError, MntrainError):
            self.was_seen(cluster, node)

    def unsee(self, cluster: str, names: Collection[str]) -> bool:
        """Forget nodes by name or address; ``False`` if none was known."""
        with self._file.locked():
            known = self._file.read().seen.get(cluster, ())
            left = tuple(
                node
                for node in known
                if node.name not in names and not set(node.addresses) & set(names)
            )
            if len(left) < len(known):
                self._write_seen(cluster, left)
            return len(left) < len(known)

    def _is_known(self, cluster: str, node: SeenNode) -> bool:
        return any(
            (one.node_id, one.name, one.addresses) == (node.node_id, node.name, node.addresses)
            and node.seen_s - one.seen_s < SEEN_AGAIN_S
            for one in self.seen(cluster, node.seen_s)
        )

    def _write(self, cluster: str, addresses: tuple[str, ...]) -> None:
        peers = self._file.read()
        clusters = peers.clusters | {cluster: addresses}
        self._file.write(_Peers(clusters=clusters, seen=peers.seen))

    def _write_seen(self, cluster: str, nodes: tuple[SeenNode, ...]) -> None:
        peers = self._file.read()
        self._file.write(_Peers(clusters=peers.clusters, seen=peers.seen | {cluster: nodes}))
