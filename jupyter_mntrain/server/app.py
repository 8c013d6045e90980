"""Jupyter server extension app: settings and routes."""

from __future__ import annotations

import os
from typing import Any

from jupyter_server.extension.application import ExtensionApp
from jupyter_server.utils import url_path_join
from traitlets import List, Unicode, default

from jupyter_mntrain.cluster import Cluster
from jupyter_mntrain.cluster.default import default_cluster
from jupyter_mntrain.command_line.systems import check_driver_system
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.server.cluster_opening import ClusterOpening
from jupyter_mntrain.server.handlers import events, job_routes, log_routes, node_routes

PREFIX = "mntrain/v1"

JOB = r"/(?P<job_id>[^/]+)"
ROUTES: tuple[tuple[str, type], ...] = (
    (r"/status", node_routes.StatusResource),
    (r"/nodes", node_routes.NodesResource),
    (r"/nodes/(?P<key>[^/]+)", node_routes.NodeResource),
    (r"/nodes/(?P<key>[^/]+)/history", node_routes.HistoryResource),
    (r"/invitations", node_routes.InvitationsResource),
    (r"/links/measure", node_routes.MeasureResource),
    (r"/doctor", node_routes.DoctorResource),
    (r"/doctor/remedy", node_routes.RemedyResource),
    (r"/doctor/deep", node_routes.DeepDoctorResource),
    (r"/bench", node_routes.BenchResource),
    (r"/own-machine/node", node_routes.OwnNodeResource),
    (r"/own-machine/membership", node_routes.OwnMembershipResource),
    (r"/own-machine/service", node_routes.OwnServiceResource),
    (r"/own-machine/wheel", node_routes.OwnWheelResource),
    (r"/compare", job_routes.CompareResource),
    (r"/launches/(?P<cluster>[^/]+)", job_routes.LaunchResource),
    (r"/jobs", job_routes.JobsResource),
    (rf"/jobs{JOB}", job_routes.JobResource),
    (rf"/jobs{JOB}/metrics", job_routes.MetricsResource),
    (rf"/jobs{JOB}/output", job_routes.OutputResource),
    (rf"/jobs{JOB}/logs", log_routes.LogsResource),
    (rf"/jobs{JOB}/log-file", log_routes.LogFileResource),
    (rf"/jobs{JOB}/files", log_routes.FilesResource),
    (rf"/jobs{JOB}/file", log_routes.FileResource),
    (rf"/jobs{JOB}/stacks", job_routes.StacksResource),
    (rf"/jobs{JOB}/spec", job_routes.SpecResource),
    (rf"/jobs{JOB}/settings", job_routes.SettingsResource),
    (rf"/jobs{JOB}/trace", job_routes.TraceResource),
    (rf"/jobs{JOB}/label", job_routes.LabelResource),
    (rf"/jobs{JOB}/removal", job_routes.RemovalResource),
    (rf"/jobs{JOB}/stop", job_routes.StopResource),
    (rf"/jobs{JOB}/save", job_routes.SaveResource),
    (rf"/jobs{JOB}/kill", job_routes.KillResource),
    (rf"/jobs{JOB}/resume", job_routes.ResumeResource),
    (rf"/jobs{JOB}/checkpoints", job_routes.CheckpointsResource),
    (r"/events", events.Events),
    (r"/.*", node_routes.NowhereResource),
)


class MntrainApp(ExtensionApp):
    """Watches one cluster for every page of this server."""

    name = "jupyter_mntrain"
    load_other_extensions = True

    cluster = Unicode(help="Name of the cluster; default: $MNTRAIN_CLUSTER.").tag(config=True)
    agents = List(
        Unicode(),
        help="host:port of agents that multicast does not reach; default: $MNTRAIN_AGENTS.",
    ).tag(config=True)

    @default("cluster")
    def _cluster_default(self) -> str:
        return default_cluster(os.environ)[0]

    @default("agents")
    def _agents_default(self) -> list[str]:
        return list(default_cluster(os.environ)[1])

    def initialize_handlers(self) -> None:
        """Add the routes; the cluster is opened by the first request."""
        try:
            check_driver_system()
            tunables.check()
        except SpecError as error:
            self.log.error("%s Until then the defaults apply.", error)
        self._opening = ClusterOpening(
            self.cluster, lambda: Cluster(self.cluster, addresses=self.agents)
        )
        base = url_path_join(r"/", PREFIX)
        options: dict[str, Any] = {"opening": self._opening}
        self.handlers.extend((base + route, handler, options) for route, handler in ROUTES)

    async def stop_extension(self) -> None:
        await self._opening.close()
