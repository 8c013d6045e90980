"""HTTP routes of the agent, one file per family. The table of routes is in ``model/api.py``."""

from __future__ import annotations

from typing import Any

from tornado.httputil import HTTPServerRequest
from tornado.routing import URLSpec
from tornado.web import Application

from jupyter_mntrain.agent.access.limits import MAX_BODY_BYTES
from jupyter_mntrain.agent.gang.watch import WatchTasks
from jupyter_mntrain.agent.http import file_routes, job_routes, node_routes
from jupyter_mntrain.agent.http.base import AgentHandler, NotFound, Roles, TooLarge, body_length
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
    one.route: one
    for family in (node_routes, file_routes, job_routes)
    for one in vars(family).values()
    if isinstance(one, type) and issubclass(one, AgentHandler) and one.route is not None
}

ROUTES = tuple((route, route.format(**_PARTS), handler) for route, handler in _HANDLERS.items())

MAY: dict[tuple[Route, str], Roles] = {
    (route, method): roles
    for route, handler in _HANDLERS.items()
    for method, roles in handler.roles.items()
}
"""Which certificate may send which request. What is not in it is refused to all."""


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
        [URLSpec(path, handler, own) for _, path, handler in ROUTES],
        default_handler_class=NotFound,
        default_handler_args=own,
    )
