"""Probe routes: measure a link. In threads, because both ends block on their sockets."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from functools import partial

from jupyter_mntrain.agent.http.base import AgentHandler
from jupyter_mntrain.agent.machine import probe
from jupyter_mntrain.http.json_handler import refusal
from jupyter_mntrain.model.api import ProbeListen, ProbeSend
from jupyter_mntrain.model.failure.kinds import Kind


class ProbeListenHandler(AgentHandler):
    def post(self) -> None:
        address = self.body_as(ProbeListen).address
        node, who = self.node, self.caller.uri
        node.sinks.take(who)  # before the audit log: requests without end must not fill it
        with self.audited("probe", address=address), ExitStack() as undoing:
            undoing.callback(node.sinks.give_back, who)
            ticket = probe.open_sink(
                address, node.name, node.has_job, on_end=partial(node.sinks.give_back, who)
            )
            undoing.pop_all()  # the sink gives it back
        self.answer(ticket)


class ProbeSendHandler(AgentHandler):
    async def post(self) -> None:
        request = self.body_as(ProbeSend)
        known = {interface.name for interface in self.node.inventory.read().interfaces}
        if request.interface not in known:
            raise refusal(400, Kind.BAD_REQUEST, f"there is no interface {request.interface!r}")
        node = self.node
        with node.measurements.held(self.caller.uri):
            link = await asyncio.to_thread(probe.measure, request, node.name, node.has_job)
        self.node.links.keep(link)
        self.node.changed()
        self.answer(link)
