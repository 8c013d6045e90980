"""Cluster API for drivers: find nodes, launch, watch, stop. Synchronous; the core is async.

Names are loaded on first use: most commands need only a part of this room, some none of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_mntrain.model.lazy import lazy_names

if TYPE_CHECKING:
    from jupyter_mntrain.cluster.cluster import Cluster
    from jupyter_mntrain.cluster.discovery.discovery import (
        Discovery,
        FoundAgent,
        MdnsDiscovery,
        StaticDiscovery,
    )
    from jupyter_mntrain.cluster.history.logs import LogLine
    from jupyter_mntrain.cluster.job import Job
    from jupyter_mntrain.cluster.view.peer_book import PeerBook
    from jupyter_mntrain.launch.progress import Progress
    from jupyter_mntrain.metrics.downsampled.rank_series import RankSeries
    from jupyter_mntrain.metrics.history import JobHistory
    from jupyter_mntrain.metrics.series import JobSeries
    from jupyter_mntrain.metrics.summary import JobSummary, LinkSummary, RankSummary
    from jupyter_mntrain.model.records.node import LinkMeasurement, Liveness, NodeView

__all__ = [
    "Cluster",
    "Discovery",
    "FoundAgent",
    "Job",
    "JobHistory",
    "JobSeries",
    "JobSummary",
    "LinkMeasurement",
    "LinkSummary",
    "Liveness",
    "LogLine",
    "MdnsDiscovery",
    "NodeView",
    "PeerBook",
    "Progress",
    "RankSeries",
    "RankSummary",
    "StaticDiscovery",
]

__getattr__ = lazy_names(
    __name__,
    {
        "Cluster": "jupyter_mntrain.cluster.cluster",
        "Discovery": "jupyter_mntrain.cluster.discovery.discovery",
        "FoundAgent": "jupyter_mntrain.cluster.discovery.discovery",
        "Job": "jupyter_mntrain.cluster.job",
        "JobHistory": "jupyter_mntrain.metrics.history",
        "JobSeries": "jupyter_mntrain.metrics.series",
        "JobSummary": "jupyter_mntrain.metrics.summary",
        "LinkMeasurement": "jupyter_mntrain.model.records.node",
        "LinkSummary": "jupyter_mntrain.metrics.summary",
        "Liveness": "jupyter_mntrain.model.records.node",
        "LogLine": "jupyter_mntrain.cluster.history.logs",
        "MdnsDiscovery": "jupyter_mntrain.cluster.discovery.discovery",
        "NodeView": "jupyter_mntrain.model.records.node",
        "PeerBook": "jupyter_mntrain.cluster.view.peer_book",
        "Progress": "jupyter_mntrain.launch.progress",
        "RankSeries": "jupyter_mntrain.metrics.downsampled.rank_series",
        "RankSummary": "jupyter_mntrain.metrics.summary",
        "StaticDiscovery": "jupyter_mntrain.cluster.discovery.discovery",
    },
)
