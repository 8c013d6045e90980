"""HTTP routes of the agent, one file per family. The table of routes is in ``model/api.py``."""

from __future__ import annotations

from typing import Any

from tornado.httputil import HTTPServerRequest
from tornado.routing import URLSpec
from tornado.web import Application

from jupyter_mntrain.agent.access.limits import MAX_BODY_BYTES
from jupyter_mntrain.agent.gang.watch import WatchTasks
from jupyter_mntrain.agent.http.base import AgentHandler, NotFound, TooLarge, body_length
from jupyter_mntrain.agent.http.file_routes import (
    BlobHandler,
    BlobsHandler,
    JobFilesHandler,
    ManifestHandler,
    PieceHandler,
    SpaceHandler,
    TransferHandler,
    TransfersHandler,
)
from jupyter_mntrain.agent.http.job_routes import (
    AttemptsHandler,
    CheckpointsAtHandler,
    CheckpointsHandler,
    DeletionHandler,
    JobChatHandler,
    JobJournalHandler,
    JobLogHandler,
    JobLogTimesHandler,
    JobSamplesHandler,
    JobSaveHandler,
    JobSettingsHandler,
    JobsHandler,
    JobStacksHandler,
    JobStopHandler,
    LabelHandler,
    LeaseHandler,
    LeasesHandler,
    PortHandler,
    QueueHandler,
    RankKillHandler,
    SpecHandler,
)
from jupyter_mntrain.agent.http.node_routes import (
    BenchedHandler,
    DescriptionHandler,
    FactsHandler,
    NodeHandler,
    NodeStreamHandler,
    PathsEndHandler,
    PathsListenHandler,
    PathsTryHandler,
    ProbeDevicesHandler,
    ProbeLeaseHandler,
    ProbeListenHandler,
    ProbeSendHandler,
    ScriptHandler,
    TrustHandler,
    UsageHandler,
    WorkplaceHandler,
)
from jupyter_mntrain.agent.node import LocalNode
from jupyter_mntrain.launch.project.tree import SHA256
from jupyter_mntrain.model.api import Route

_PARTS = {
    "job_id": r"(?P<job_id>[^/]+)",
    "attempt": r"(?P<attempt>[1-9][0-9]{0,5})",
    "rank": r"(?P<rank>[0-9]{1,6})",
    "port": r"(?P<port>[1-9][0-9]{0,4})",
    "sha256": rf"(?P<sha256>{SHA256})",
    "transfer": rf"(?P<transfer>{SHA256})",
    "piece": r"(?P<piece>[0-9]{1,7})",
}

_HANDLERS: dict[Route, type[AgentHandler]] = {
    Route.NODE: NodeHandler,
    Route.DESCRIPTION: DescriptionHandler,
    Route.WORKPLACE: WorkplaceHandler,
    Route.FACTS: FactsHandler,
    Route.SCRIPT: ScriptHandler,
    Route.PATHS_LISTEN: PathsListenHandler,
    Route.PATHS_TRY: PathsTryHandler,
    Route.PATHS_END: PathsEndHandler,
    Route.STREAM: NodeStreamHandler,
    Route.HISTORY: UsageHandler,
    Route.LEASES: LeasesHandler,
    Route.LEASE: LeaseHandler,
    Route.PORT: PortHandler,
    Route.BLOBS: BlobsHandler,
    Route.BLOB: BlobHandler,
    Route.MANIFEST: ManifestHandler,
    Route.TRANSFERS: TransfersHandler,
    Route.TRANSFER: TransferHandler,
    Route.PIECE: PieceHandler,
    Route.SPACE: SpaceHandler,
    Route.JOBS: JobsHandler,
    Route.JOB: QueueHandler,
    Route.SPEC: SpecHandler,
    Route.DELETION: DeletionHandler,
    Route.LABEL: LabelHandler,
    Route.ATTEMPT: AttemptsHandler,
    Route.STOP: JobStopHandler,
    Route.JOURNAL: JobJournalHandler,
    Route.SAMPLES: JobSamplesHandler,
    Route.LOG: JobLogHandler,
    Route.LOG_TIMES: JobLogTimesHandler,
    Route.SAVE: JobSaveHandler,
    Route.SETTINGS: JobSettingsHandler,
    Route.CHAT: JobChatHandler,
    Route.CHECKPOINTS: CheckpointsHandler,
    Route.CHECKPOINTS_AT: CheckpointsAtHandler,
    Route.JOB_FILES: JobFilesHandler,
    Route.STACKS: JobStacksHandler,
    Route.KILL_RANK: RankKillHandler,
    Route.PROBE_LEASE: ProbeLeaseHandler,
    Route.PROBE_LISTEN: ProbeListenHandler,
    Route.PROBE_SEND: ProbeSendHandler,
    Route.PROBE_DEVICES: ProbeDevicesHandler,
    Route.BENCHED: BenchedHandler,
    Route.TRUST: TrustHandler,
}

ROUTES = tuple((route, route.format(**_PARTS), handler) for route, handler in _HANDLERS.items())


class AgentApplication(Application):
    """Application that sends requests with too long a body to a handler that discards it."""

    def find_handler(self, request: HTTPServerRequest, **kwargs: Any) -> Any:
        if (body_length(request.headers) or 0) > MAX_BODY_BYTES:
            return self.get_handler_delegate(
                request, TooLarge, self.settings["default_handler_args"]
            )
        return super().find_handler(request, **kwargs)


def application(node: LocalNode, watch_tasks: WatchTasks) -> Application:
    """Make an application with all routes of :mod:`jupyter_mntrain.model.api`."""
    own: dict[str, Any] = {"node": node, "watch_tasks": watch_tasks}
    return AgentApplication(
        [URLSpec(path, handler, {**own, "route": route}) for route, path, handler in ROUTES],
        default_handler_class=NotFound,
        default_handler_args=own,
    )
