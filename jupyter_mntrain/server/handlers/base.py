"""Page handlers: reach the watcher of the cluster, in Jupyter's own authentication."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import ParamSpec, TypeVar

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler, JupyterHandler
from tornado.web import authenticated

from jupyter_mntrain.http.json_handler import JsonHandler
from jupyter_mntrain.model.errors import (
    JobNotFoundError,
    NodeError,
    RefusedError,
    TrustError,
)
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.server.cluster_opening import Opening
from jupyter_mntrain.server.updates import PageUpdates

T = TypeVar("T")
P = ParamSpec("P")
Method = Callable[..., Awaitable[None] | None]

RESOURCE = "mntrain"
"""What Jupyter's authorizer is asked about."""


def allowed(method: Method) -> Method:
    """For users who are logged in and whom Jupyter's authorizer lets use mntrain."""
    return authenticated(authorized(method))


class HubHandler(JsonHandler, JupyterHandler):
    """Reaches the one watcher of the cluster."""

    statuses = {
        JobNotFoundError: 404,
        RefusedError: 409,
        NodeError: 502,
        TrustError: 409,
    }
    broken = Problem(
        kind=Kind.BROKEN, cause="the Jupyter server extension failed", fix="see its log"
    )

    auth_resource = RESOURCE

    def initialize(self, opening: Opening) -> None:
        self._opening = opening

    async def hub(self) -> PageUpdates:
        """The watcher, which the first who asks opens."""
        return await self._opening.hub()


class MntrainHandler(HubHandler, APIHandler):
    """Runs what waits for nodes outside the event loop."""

    async def work(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run what waits for nodes in a thread; a route waits for its own requests only."""
        return await self._opening.work(type(self).__name__, partial(call, *args, **kwargs))

    @property
    def person(self) -> str:
        """The user's display name: a login name may be a mere number."""
        user = self.current_user
        return str(user.display_name or user.name or user.username)
