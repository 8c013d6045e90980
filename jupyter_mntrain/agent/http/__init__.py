"""HTTP routes of the agent, one file per family; the table of routes is ``model/api.py``."""

from __future__ import annotations

from typing import Any

from tornado.httputil import HTTPServerRequest
from tornado.routing import URLSpec
from tornado.web import Application

from jupyter_mntrain.agent.access.limits import MAX_BODY_BYTES
from jupyter_mntrain.agent.gang.watch_tasks import Watches
from jupyter_mntrain.agent.http.base import AgentHandler, NotFound, TooLarge
from jupyter_mntrain.agent.http.job_routes import (
    AttemptsHandler,
    JobJournalHandler,
    JobLogHandler,
    JobSaveHandler,
    JobsHandler,
    JobStacksHandler,
    JobStopHandler,
    QueueHandler,
)
from jupyter_mntrain.agent.http.lease_routes import LeaseHandler, LeasesHandler, PortHandler
from jupyter_mntrain.agent.http.node_routes import NodeHandler, NodeStreamHandler
from jupyter_mntrain.agent.http.probe_routes import ProbeListenHandler, ProbeSendHandler
from jupyter_mntrain.agent.http.trust_routes import TrustHandler
from jupyter_mntrain.agent.node import LocalNode

_JOB = r"/v1/jobs/(?P<job_id>[^/]+)"
_ATTEMPT = r"(?P<attempt>[1-9][0-9]{0,5})"


ROUTES: tuple[tuple[str, type[AgentHandler]], ...] = (
    (r"/v1/node", NodeHandler),
    (r"/v1/stream", NodeStreamHandler),
    (r"/v1/leases", LeasesHandler),
    (rf"/v1/leases/(?P<job_id>[^/]+)/{_ATTEMPT}", LeaseHandler),
    (r"/v1/port/(?P<port>[1-9][0-9]{0,4})", PortHandler),
    (r"/v1/jobs", JobsHandler),
    (_JOB, QueueHandler),
    (rf"{_JOB}/attempts/{_ATTEMPT}", AttemptsHandler),
    (rf"{_JOB}/stop", JobStopHandler),
    (rf"{_JOB}/journal", JobJournalHandler),
    (rf"{_JOB}/log", JobLogHandler),
    (rf"{_JOB}/save", JobSaveHandler),
    (rf"{_JOB}/stacks", JobStacksHandler),
    (r"/v1/probe/listen", ProbeListenHandler),
    (r"/v1/probe/send", ProbeSendHandler),
    (r"/v1/trust", TrustHandler),
)


class AgentApplication(Application):
    """Sends a request whose body is too long to the one handler that does not keep it."""

    def __init__(self, routes: list[URLSpec], own: dict[str, Any]) -> None:
        super().__init__(
            routes,
            default_handler_class=NotFound,
            default_handler_args=own,
        )
        self._own = own

    def find_handler(self, request: HTTPServerRequest, **kwargs: Any) -> Any:
        length = request.headers.get("Content-Length", "0")
        if length.isdigit() and int(length) > MAX_BODY_BYTES:
            return self.get_handler_delegate(request, TooLarge, self._own)
        return super().find_handler(request, **kwargs)


def application(node: LocalNode, watches: Watches) -> Application:
    """All routes of :mod:`jupyter_mntrain.model.api`."""
    own: dict[str, Any] = {"node": node, "watches": watches}
    return AgentApplication([URLSpec(path, handler, own) for path, handler in ROUTES], own)
