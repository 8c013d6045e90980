"""Which cluster a line means, and waiting until the nodes it names are found."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence

from jupyter_mntrain.cluster import Cluster
from jupyter_mntrain.model.api import DEFAULT_CLUSTER

FIND_TIMEOUT_S = 3.0
"""A cold mDNS browse takes 1.2 s, an agent that has just started announces after 1.7 s (measured)."""

SETTLE_S = 0.7
"""After the first node: the others of a LAN answer within this."""

LOOK_INTERVAL_S = 0.05


def cluster_key(
    arguments: argparse.Namespace, environment: Mapping[str, str]
) -> tuple[str, tuple[str, ...]]:
    """(name, typed-in addresses) from the options, else from the environment."""
    name = arguments.cluster or environment.get("MNTRAIN_CLUSTER") or DEFAULT_CLUSTER
    listed = environment.get("MNTRAIN_AGENTS", "")
    agents = arguments.agent or [word for word in listed.replace(",", " ").split() if word]
    return name, tuple(agents)


def open_cluster(arguments: argparse.Namespace, environment: Mapping[str, str]) -> Cluster:
    name, agents = cluster_key(arguments, environment)
    return Cluster(name, addresses=agents)


def find_nodes(cluster: Cluster, wanted: Sequence[str]) -> None:
    """Return as soon as every wanted node is up, or, with none named, the LAN has settled.

    Not finding one is no error here: the verb says it better.
    """
    deadline = time.monotonic() + FIND_TIMEOUT_S
    if wanted:
        while time.monotonic() < deadline and not _all_up(cluster, wanted):
            time.sleep(LOOK_INTERVAL_S)
        return
    cluster.wait_for_nodes(1, FIND_TIMEOUT_S)
    settled = min(deadline, time.monotonic() + SETTLE_S)
    count = len(cluster.nodes())
    while time.monotonic() < settled:
        time.sleep(LOOK_INTERVAL_S)
        views = cluster.nodes()
        if len(views) > count or any(view.liveness == "connecting" for view in views):
            count, settled = len(views), min(deadline, time.monotonic() + SETTLE_S)


def _all_up(cluster: Cluster, wanted: Sequence[str]) -> bool:
    up = {view.name for view in cluster.nodes() if view.liveness == "up"}
    up |= {view.info.node_id for view in cluster.nodes() if view.info is not None}
    return set(wanted) <= up
