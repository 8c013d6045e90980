"""Page handlers: give authenticated requests access to the cluster's page updates."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import ParamSpec, TypeVar

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler, JupyterHandler
from tornado.web import authenticated

from jupyter_mntrain.http.json_handler import JsonHandler
from jupyter_mntrain.model.errors import JobNotFoundError, NodeError, RefusedError, TrustError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.server.cluster_opening import ClusterOpening
from jupyter_mntrain.server.messages import page_json
from jupyter_mntrain.server.updates import PageUpdates

T = TypeVar("T")
P = ParamSpec("P")
Method = Callable[..., Awaitable[None] | None]

RESOURCE = "mntrain"
"""Name of the resource for Jupyter's authorizer."""


def allowed(method: Method) -> Method:
    """Restrict a method to users who are logged in and authorized by Jupyter to use mntrain."""
    return authenticated(authorized(method))


class ClusterHandler(JsonHandler, JupyterHandler):
    """A handler with access to the cluster's page updates."""

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

    def initialize(self, opening: ClusterOpening) -> None:
        self._opening = opening

    def encode(self, content: object) -> bytes:
        return page_json(content)

    async def updates(self) -> PageUpdates:
        """The cluster's updates; the first call opens the cluster."""
        return await self._opening.updates()


class MntrainHandler(ClusterHandler, APIHandler):
    """A handler that runs blocking calls outside the event loop."""

    async def work(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking call in a thread. A slow route does not delay other routes."""
        return await self._opening.work(type(self).__name__, partial(call, *args, **kwargs))

    @property
    def person(self) -> str:
        """The user's display name: a login name may be only a number."""
        user = self.current_user
        return str(user.display_name or user.name or user.username)
