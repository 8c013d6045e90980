"""Node routes: the node's inventory, and the stream of its changes, which is its heartbeat."""

from __future__ import annotations

from contextlib import suppress

from tornado.iostream import StreamClosedError

from jupyter_mntrain.agent.http.base import AgentHandler
from jupyter_mntrain.agent.machine.description import describe_machine
from jupyter_mntrain.model.api import Hello, JobChanged
from jupyter_mntrain.model.records.node import Workplace


class NodeHandler(AgentHandler):
    def get(self) -> None:
        self.answer(self.node.info())


class DescriptionHandler(AgentHandler):
    async def get(self) -> None:
        self.answer(await self.slowly(describe_machine, self.node.python))


class WorkplaceHandler(AgentHandler):
    async def post(self) -> None:
        asked = self.body_as(Workplace)
        self.answer(await self.slowly(self.node.workplaces.look, asked))


class NodeStreamHandler(AgentHandler):
    async def get(self) -> None:
        with (
            self.streaming(),
            self.node.listeners.listen() as messages,
            suppress(StreamClosedError),
        ):
            self.set_header("Content-Type", "application/x-ndjson")
            live = (job.record for job in self.node.jobs.all() if job.file.is_live)
            jobs = tuple(record.without_files() for record in live)
            hello = Hello(node=self.node.info(), jobs=jobs)
            await self.send_block(self.encode(hello) + b"\n")
            while (message := await messages.get()) is not None:
                if isinstance(message, JobChanged):
                    message = JobChanged(record=message.record.without_files())
                await self.send_block(self.encode(message) + b"\n")
