"""What drivers use: find nodes, launch on them, watch, end. Synchronous; the core is async."""

from jupyter_mntrain.cluster.cluster import Cluster
from jupyter_mntrain.cluster.discovery import Discovery, Found, MdnsDiscovery, StaticDiscovery
from jupyter_mntrain.cluster.history import JobHistory, RankSeries
from jupyter_mntrain.cluster.job import Job
from jupyter_mntrain.cluster.link_summary import LinkSummary
from jupyter_mntrain.cluster.logs import LogLine
from jupyter_mntrain.cluster.measure import LinkMeasurement
from jupyter_mntrain.cluster.node_view import Liveness, NodeView
from jupyter_mntrain.cluster.peers import PeerBook
from jupyter_mntrain.cluster.progress import Progress
from jupyter_mntrain.cluster.summary import JobSummary, RankSummary

__all__ = [
    "Cluster",
    "Discovery",
    "Found",
    "Job",
    "JobHistory",
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
