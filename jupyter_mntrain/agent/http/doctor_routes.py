"""Doctor routes: what this node tells a doctor, in threads, as reading it may block."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from functools import partial

import msgspec

from jupyter_mntrain.agent.http.base import AgentHandler
from jupyter_mntrain.agent.machine.facts import MachineReader, read_script_there
from jupyter_mntrain.agent.machine.links.paths import try_paths
from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.records.doctor.machine import AskedScript, MachineQuestion
from jupyter_mntrain.model.records.doctor.paths import PathEnd, PathListen, PathsAsked


class FactsHandler(AgentHandler):
    async def post(self) -> None:
        asked, node = self.body_as(MachineQuestion), self.node
        machine = MachineReader(node.jobs.directory, node.inventory.gpus, node.workplaces.loaded)
        facts, lacking = await asyncio.gather(
            self.slowly(machine.read, asked),
            self.slowly(node.workplaces.lacking, asked.python, asked.modules, asked.loaders),
        )
        self.answer(msgspec.structs.replace(facts, lacking=lacking))


class ScriptHandler(AgentHandler):
    async def post(self) -> None:
        self.answer(await self.slowly(read_script_there, self.body_as(AskedScript)))


class PathsListenHandler(AgentHandler):
    def post(self) -> None:
        asked, node, who = self.body_as(PathListen), self.node, self.caller.uri
        node.sinks.take(who)
        with ExitStack() as undoing:
            undoing.callback(node.sinks.give_back, who)
            end = partial(node.sinks.give_back, who)
            ticket = node.path_listeners.open(asked, node.name, end)
            undoing.pop_all()  # the listener gives it back
        self.answer(msgspec.structs.replace(ticket, is_busy=node.has_job()))


class PathsTryHandler(AgentHandler):
    async def post(self) -> None:
        asked, node = self.body_as(PathsAsked), self.node
        with node.measurements.held(self.caller.uri):
            may_load = not node.has_job() and self._is_nobody_measuring()
            found = await self.slowly(try_paths, asked, node.name, may_load=may_load)
        self.answer(found)

    def _is_nobody_measuring(self) -> bool:
        try:
            self.node.turn.refuse_others("", self.node.name)
        except RefusedError:
            return False
        return True


class PathsEndHandler(AgentHandler):
    async def post(self) -> None:
        asked = self.body_as(PathEnd)
        self.answer(await self.slowly(self.node.path_listeners.end, asked.token))
