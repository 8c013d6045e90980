"""Routes that change the machine of the Jupyter server, and no other machine."""

from __future__ import annotations

from jupyter_mntrain.server import own_machine
from jupyter_mntrain.server.handlers.base import MntrainHandler, allowed
from jupyter_mntrain.server.messages import JoinCluster, MakeNode
from jupyter_mntrain.verbs.nodes.installing.plan import TOKEN_LIFE_S


class OwnNodeResource(MntrainHandler):
    @allowed
    async def post(self) -> None:
        updates, choice = await self.updates(), self.body_as(MakeNode)
        invite = updates.cluster.membership.invite
        token = await self.work(invite, expires_in_s=TOKEN_LIFE_S)
        changed = await self.work(own_machine.become_node, token, choice, updates.cluster)
        updates.look_now()
        self.answer(changed, 201)


class OwnMembershipResource(MntrainHandler):
    @allowed
    async def post(self) -> None:
        await self.updates()
        changed = await self.work(own_machine.join, self.body_as(JoinCluster).token)
        self.answer(changed, 201)


class OwnServiceResource(MntrainHandler):
    @allowed
    async def post(self) -> None:
        await self.updates()
        self.answer(await self.work(own_machine.install_service), 201)


class OwnWheelResource(MntrainHandler):
    @allowed
    async def post(self) -> None:
        self.answer(await self.work(own_machine.packed_wheel), 201)
