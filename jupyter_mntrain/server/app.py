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
from jupyter_mntrain.server.handlers import (
    bench_route,
    compare_route,
    doctor_route,
    events,
    file_routes,
    job_routes,
    launch_route,
    log_routes,
    node_routes,
    output_route,
    own_machine_routes,
    record_routes,
    resume_routes,
    trace_route,
)

PREFIX = "mntrain/v1"

JOB = r"/(?P<job_id>[^/]+)"
ROUTES: tuple[tuple[str, type], ...] = (
    (r"/status", node_routes.StatusResource),
    (r"/nodes", node_routes.NodesResource),
    (r"/nodes/(?P<key>[^/]+)", node_routes.NodeResource),
    (r"/nodes/(?P<key>[^/]+)/history", node_routes.HistoryResource),
    (r"/invitations", node_routes.InvitationsResource),
    (r"/links/measure", node_routes.MeasureResource),
    (r"/doctor", doctor_route.DoctorResource),
    (r"/doctor/remedy", doctor_route.RemedyResource),
    (r"/doctor/deep", doctor_route.DeepDoctorResource),
    (r"/bench", bench_route.BenchResource),
    (r"/own-machine/node", own_machine_routes.OwnNodeResource),
    (r"/own-machine/membership", own_machine_routes.OwnMembershipResource),
    (r"/own-machine/service", own_machine_routes.OwnServiceResource),
    (r"/own-machine/wheel", own_machine_routes.OwnWheelResource),
    (r"/compare", compare_route.CompareResource),
    (r"/launches/(?P<cluster>[^/]+)", launch_route.LaunchResource),
    (r"/jobs", job_routes.JobsResource),
    (rf"/jobs{JOB}", job_routes.JobResource),
    (rf"/jobs{JOB}/metrics", job_routes.MetricsResource),
    (rf"/jobs{JOB}/output", output_route.OutputResource),
    (rf"/jobs{JOB}/logs", log_routes.LogsResource),
    (rf"/jobs{JOB}/log-file", log_routes.LogFileResource),
    (rf"/jobs{JOB}/files", file_routes.FilesResource),
    (rf"/jobs{JOB}/file", file_routes.FileResource),
    (rf"/jobs{JOB}/stacks", job_routes.StacksResource),
    (rf"/jobs{JOB}/spec", job_routes.SpecResource),
    (rf"/jobs{JOB}/settings", job_routes.SettingsResource),
    (rf"/jobs{JOB}/trace", trace_route.TraceResource),
    (rf"/jobs{JOB}/label", record_routes.LabelResource),
    (rf"/jobs{JOB}/removal", record_routes.RemovalResource),
    (rf"/jobs{JOB}/stop", job_routes.StopResource),
    (rf"/jobs{JOB}/save", job_routes.SaveResource),
    (rf"/jobs{JOB}/kill", job_routes.KillResource),
    (rf"/jobs{JOB}/resume", resume_routes.ResumeResource),
    (rf"/jobs{JOB}/checkpoints", resume_routes.CheckpointsResource),
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
