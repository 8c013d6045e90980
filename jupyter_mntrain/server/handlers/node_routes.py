"""Node resources: nodes, invitations and links."""

from __future__ import annotations

import math

from jupyter_mntrain.cluster.agents.address import own_networks, parse_address, refuse_elsewhere
from jupyter_mntrain.command_line.token_input import piped
from jupyter_mntrain.http.json_handler import RequestRefusedError, refusal
from jupyter_mntrain.metrics.node_history import LONGEST_S, MOST_POINTS, POINTS
from jupyter_mntrain.model.api import DEFAULT_PORT
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.node_view import NodeView
from jupyter_mntrain.server.handlers.base import MntrainHandler, allowed
from jupyter_mntrain.server.messages import AddNode, Invitation, Invite, MeasureLinks
from jupyter_mntrain.server.updates import PageUpdates
from jupyter_mntrain.trust.joining.token import read_token
from jupyter_mntrain.verbs.nodes.installing.facts import needed_versions

HOUR_S = 3600


def no_such_node(key: str) -> RequestRefusedError:
    return refusal(404, Kind.NO_SUCH_NODE, f"no node {key!r} is known", "see GET nodes")


class NowhereResource(MntrainHandler):
    """Any other route: answers with a problem instead of Jupyter's error page."""

    @allowed
    async def get(self) -> None:
        raise refusal(404, Kind.NO_SUCH_ROUTE, f"no such route: {self.request.path}")

    post = put = delete = patch = get


class StatusResource(MntrainHandler):
    @allowed
    async def get(self) -> None:
        self.answer((await self.updates()).status)


class NodesResource(MntrainHandler):
    @allowed
    async def get(self) -> None:
        self.answer((await self.updates()).nodes)

    @allowed
    async def post(self) -> None:
        updates, body = await self.updates(), self.body_as(AddNode)
        view = await self.work(_add, updates, body.address)
        updates.look_now()
        added = next((entry for entry in updates.nodes if entry.view.address == view.address), None)
        added = added or next(entry for entry in updates.nodes if entry.name == view.name)
        self.answer(added, 201)


def _add(updates: PageUpdates, address: str) -> NodeView:
    """Add a node, unless pages may not have this machine connect to its address.

    Raises:
        SpecError, TrustError, NodeError: as for :meth:`ClusterDiscovery.add`.
    """
    if parse_address(address) not in {entry.view.address for entry in updates.nodes}:
        refuse_elsewhere(address, own_networks())
    return updates.cluster.discovery.add(address)


class NodeResource(MntrainHandler):
    @allowed
    async def delete(self, key: str) -> None:
        updates = await self.updates()
        entry = next((one for one in updates.nodes if one.key == key), None)
        if entry is None:
            raise no_such_node(key)
        await self.work(updates.cluster.discovery.forget, entry.view.address)
        updates.look_now()
        self.set_status(204)
        self.finish()


class HistoryResource(MntrainHandler):
    """What a node did in the last ``last`` seconds."""

    @allowed
    async def get(self, key: str) -> None:
        updates = await self.updates()
        entry = next((one for one in updates.nodes if one.key == key), None)
        if entry is None:
            raise no_such_node(key)
        last_s = self.number("last", HOUR_S, 1, LONGEST_S)
        points = self.number("points", POINTS, 2, MOST_POINTS)
        name = entry.view.info.node_id if entry.view.info else entry.name
        history = updates.cluster.usage.history
        self.answer(await self.work(history, name, last_s=last_s, points=points))


class InvitationsResource(MntrainHandler):
    @allowed
    async def post(self) -> None:
        updates, body = await self.updates(), self.body_as(Invite)
        if not math.isfinite(body.expires_in_s):
            raise refusal(
                400, Kind.BAD_REQUEST, "expires_in_s is not a valid duration", "give seconds"
            )
        text = await self.work(
            updates.cluster.membership.invite, uses=body.uses, expires_in_s=body.expires_in_s
        )
        updates.look_now()
        expires_s = read_token(text).expires_s
        invitation = Invitation(
            command=piped(text, "mntrain agent join --service"),
            uses=body.uses,
            expires_s=expires_s,
            port=DEFAULT_PORT,
            versions=needed_versions(),
        )
        self.answer(invitation, 201)


class MeasureResource(MntrainHandler):
    @allowed
    async def post(self) -> None:
        updates, body = await self.updates(), self.body_as(MeasureLinks)
        cluster = updates.cluster

        def measure() -> object:
            chosen = cluster.participants([f"{name}:1" for name in body.nodes])
            return cluster.measure(chosen if body.nodes else None)

        self.answer(await self.work(measure))
