"""Doctor resource: what keeps nodes from training. It asks them, and changes nothing."""

from __future__ import annotations

from jupyter_mntrain.server.handlers.base import MntrainHandler, allowed
from jupyter_mntrain.server.shown_checks import TITLES, Examination, Examine


class DoctorResource(MntrainHandler):
    @allowed
    async def post(self) -> None:
        updates, body = await self.updates(), self.body_as(Examine)
        report = await self.work(updates.cluster.doctor.examine, body.nodes)
        self.answer(Examination(report=report, checks=TITLES))
