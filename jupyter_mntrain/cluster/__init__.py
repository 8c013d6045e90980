"""Cluster API for drivers: find nodes, launch, watch, stop. Synchronous; the core is async."""

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
from jupyter_mntrain.metrics.history import JobHistory, RankSeries
from jupyter_mntrain.metrics.series import JobSeries
from jupyter_mntrain.metrics.summary import JobSummary, LinkSummary, RankSummary
from jupyter_mntrain.model.records.node import LinkMeasurement
from jupyter_mntrain.model.records.node_view import Liveness, NodeView

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
