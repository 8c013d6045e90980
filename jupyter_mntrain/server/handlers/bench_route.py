"""Bench resource: starts the collective benchmark and reports its progress."""

from __future__ import annotations

from jupyter_mntrain.server.benches import BeginBench
from jupyter_mntrain.server.handlers.base import MntrainHandler, allowed


class BenchResource(MntrainHandler):
    @allowed
    async def get(self) -> None:
        self.answer(await self.work(self._opening.benches.state))

    @allowed
    async def post(self) -> None:
        updates, body = await self.updates(), self.body_as(BeginBench)
        benches = self._opening.benches
        self.answer(await self.work(benches.begin, updates.cluster, body.nodes))

    @allowed
    async def delete(self) -> None:
        self.answer(await self.work(self._opening.benches.cancel))
