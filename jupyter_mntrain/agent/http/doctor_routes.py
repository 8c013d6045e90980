"""Doctor routes: what this node tells a doctor, in threads, as reading it may block."""

from __future__ import annotations

import asyncio

from jupyter_mntrain.agent.http.base import AgentHandler
from jupyter_mntrain.agent.machine.facts.reading import MachineReader
from jupyter_mntrain.model.records.doctor.machine import MachineQuestion


class FactsHandler(AgentHandler):
    async def post(self) -> None:
        asked, node = self.body_as(MachineQuestion), self.node
        machine = MachineReader(node.jobs.directory, node.inventory.gpus)
        self.answer(await asyncio.to_thread(machine.read, asked))
