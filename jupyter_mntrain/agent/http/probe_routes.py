"""Probe routes: measure a link, in threads, as both ends block on their sockets; and devices."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

from jupyter_mntrain.agent.http.base import AgentHandler
from jupyter_mntrain.agent.machine.links import probe
from jupyter_mntrain.http.json_handler import refusal
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.doctor.benchmark import BenchedLinks
from jupyter_mntrain.model.records.plan import MeasureDevices
from jupyter_mntrain.model.records.probes import MeasureLease, ProbeListen, ProbeSend
from jupyter_mntrain.plan.networks.outdated import link_end


class ProbeLeaseHandler(AgentHandler):
    def post(self) -> None:
        request, node = self.body_as(MeasureLease), self.node
        jobs = {
            job.placement.interface: job.record.job_id
            for job in node.jobs.active()
            if node.leases.find(job.record.job_id, job.record.attempt.number)  # not if it waits
        }
        node.turn.take(request, jobs, node.name)
        self.answer({})


class ProbeListenHandler(AgentHandler):
    def post(self) -> None:
        request = self.body_as(ProbeListen)
        node, who = self.node, self.caller.uri
        if self.caller.role == "driver":  # a node tries its job's links
            node.turn.refuse_others(request.lease, node.name)
        node.sinks.take(who)  # before the audit log: requests without end must not fill it
        with self.audited("probe", address=request.address), ExitStack() as undoing:
            undoing.callback(node.sinks.give_back, who)
            ticket = probe.open_sink(
                request.address,
                node.name,
                node.has_job,
                streams=request.streams,
                on_end=partial(node.sinks.give_back, who),
            )
            undoing.pop_all()  # the sink gives it back
        self.answer(ticket)


class ProbeSendHandler(AgentHandler):
    async def post(self) -> None:
        request, node = self.body_as(ProbeSend), self.node
        node.turn.refuse_others(request.lease, node.name)
        found = {one.name: one for one in node.inventory.read().interfaces}
        if request.interface not in found:
            raise refusal(400, Kind.BAD_REQUEST, f"there is no interface {request.interface!r}")
        own_end = link_end(found[request.interface])
        with node.measurements.held(self.caller.uri):
            link = await self.slowly(probe.measure, request, node.name, node.has_job, own_end)
        node.links.keep(link)
        node.changed()
        self.answer(link)


class ProbeDevicesHandler(AgentHandler):
    async def post(self) -> None:
        request, node = self.body_as(MeasureDevices), self.node
        node.measurements.take(self.caller.uri)
        with (
            ExitStack() as undoing,
            self.audited("measure", ranks=str(len(request.gpus) or request.ranks)),
        ):
            undoing.callback(node.measurements.give_back, self.caller.uri)
            measured = await node.devices.measure(request, node.name, node.has_job)
        node.changed()
        self.answer(measured)


class BenchedHandler(AgentHandler):
    def put(self) -> None:
        """Keep what messages that this node sent reached in a benchmark."""
        request, node = self.body_as(BenchedLinks), self.node
        names = {one.name for one in node.inventory.read().interfaces}
        for link in request.links:
            if link.sender != node.name or link.interface not in names or not link.backend:
                what = f"{link.sender} has not benched {link.interface!r} of {node.name}"
                raise refusal(400, Kind.BAD_REQUEST, what)
        for link in request.links:
            node.links.keep(link)
        node.changed()
        self.answer({})
