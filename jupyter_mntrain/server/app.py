"""The extension of the Jupyter server: its settings, its routes, its end."""

from __future__ import annotations

import os
from typing import Any

from jupyter_server.extension.application import ExtensionApp
from jupyter_server.utils import url_path_join
from traitlets import List, Unicode, default

from jupyter_mntrain import __version__
from jupyter_mntrain.cluster import Cluster
from jupyter_mntrain.cluster.default import default_cluster
from jupyter_mntrain.server.cluster_opening import Opening
from jupyter_mntrain.server.handlers import events
from jupyter_mntrain.server.handlers import job_routes as jobs
from jupyter_mntrain.server.handlers import node_routes as nodes

PREFIX = "mntrain/v1"

JOB = r"/(?P<job_id>[^/]+)"
ROUTES: tuple[tuple[str, type], ...] = (
    (r"/status", nodes.Status),
    (r"/nodes", nodes.Nodes),
    (r"/nodes/(?P<key>[^/]+)", nodes.Node),
    (r"/invitations", nodes.Invitations),
    (r"/links/measure", nodes.Measure),
    (r"/jobs", jobs.Jobs),
    (rf"/jobs{JOB}", jobs.Job),
    (rf"/jobs{JOB}/metrics", jobs.Metrics),
    (rf"/jobs{JOB}/logs", jobs.Logs),
    (rf"/jobs{JOB}/spec", jobs.Spec),
    (rf"/jobs{JOB}/stop", jobs.Stop),
    (rf"/jobs{JOB}/save", jobs.Save),
    (rf"/jobs{JOB}/kill", jobs.Kill),
    (r"/events", events.Events),
    (r"/.*", nodes.Nowhere),
)


class MntrainApp(ExtensionApp):
    """Watches one cluster for every page of this server."""

    name = "jupyter_mntrain"
    load_other_extensions = True

    cluster = Unicode(help="Name of the cluster; $MNTRAIN_CLUSTER if not given.").tag(config=True)
    agents = List(
        Unicode(), help="host:port of agents multicast does not find; $MNTRAIN_AGENTS."
    ).tag(config=True)

    @default("cluster")
    def _cluster_default(self) -> str:
        return default_cluster(os.environ)[0]

    @default("agents")
    def _agents_default(self) -> list[str]:
        return list(default_cluster(os.environ)[1])

    def initialize_handlers(self) -> None:
        """Add the routes; nothing is opened before somebody asks."""
        self._opening = Opening(self._connect, __version__)
        base = url_path_join(r"/", PREFIX)
        options: dict[str, Any] = {"opening": self._opening}
        self.handlers.extend((base + route, handler, options) for route, handler in ROUTES)

    async def stop_extension(self) -> None:
        await self._opening.close()

    def _connect(self) -> Cluster:
        return Cluster(self.cluster, addresses=self.agents)
