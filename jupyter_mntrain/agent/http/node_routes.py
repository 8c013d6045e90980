"""Node routes: the node's inventory, and the stream of its changes, which serves as heartbeat."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack, suppress
from functools import partial

import msgspec
from tornado.iostream import StreamClosedError

from jupyter_mntrain.agent.http.base import DRIVERS, GANG, WATCHING, AgentHandler
from jupyter_mntrain.agent.machine.description import describe_machine
from jupyter_mntrain.agent.machine.facts import MachineReader, read_script_there
from jupyter_mntrain.agent.machine.links import probe
from jupyter_mntrain.agent.machine.links.paths import try_paths
from jupyter_mntrain.agent.machine.usage import gaps, jobs_within, part_over, span_of
from jupyter_mntrain.http.json_handler import LARGEST, refusal
from jupyter_mntrain.metrics.node_history import MOST_POINTS, POINTS, HistoryPart, NodeHistory
from jupyter_mntrain.model.api import Hello, JobChanged, Route, TrustNews
from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.doctor.benchmark import BenchedLinks
from jupyter_mntrain.model.records.doctor.machine import AskedScript, MachineQuestion
from jupyter_mntrain.model.records.doctor.paths import PathEnd, PathListen, PathsAsked
from jupyter_mntrain.model.records.node import Workplace
from jupyter_mntrain.model.records.plan import MeasureDevices, MeasuringDevices
from jupyter_mntrain.model.records.probes import MeasureLease, ProbeListen, ProbeSend
from jupyter_mntrain.plan.networks.outdated import link_end


class NodeHandler(AgentHandler, route=Route.NODE, get=WATCHING):
    def get(self) -> None:
        self.answer(self.node.info())


class DescriptionHandler(AgentHandler, route=Route.DESCRIPTION, get=DRIVERS):
    async def get(self) -> None:
        self.answer(await self.slowly(describe_machine, self.node.python))


class WorkplaceHandler(AgentHandler, route=Route.WORKPLACE, post=DRIVERS):
    async def post(self) -> None:
        asked = self.body_as(Workplace)
        self.answer(await self.slowly(self.node.workplaces.look, asked))


class NodeStreamHandler(AgentHandler, route=Route.STREAM, get=WATCHING):
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


# Doctor routes: what this node tells a doctor, in threads, as reading it may block.


class FactsHandler(AgentHandler, route=Route.FACTS, post=DRIVERS):
    async def post(self) -> None:
        asked, node = self.body_as(MachineQuestion), self.node
        machine = MachineReader(node.jobs.directory, node.inventory.gpus, node.workplaces.loaded)
        facts, lacking = await asyncio.gather(
            self.slowly(machine.read, asked),
            self.slowly(node.workplaces.lacking, asked.python, asked.modules, asked.loaders),
        )
        self.answer(msgspec.structs.replace(facts, lacking=lacking))


class ScriptHandler(AgentHandler, route=Route.SCRIPT, post=DRIVERS):
    async def post(self) -> None:
        self.answer(await self.slowly(read_script_there, self.body_as(AskedScript)))


class PathsListenHandler(AgentHandler, route=Route.PATHS_LISTEN, post=DRIVERS):
    def post(self) -> None:
        asked, node, who = self.body_as(PathListen), self.node, self.caller.uri
        node.sinks.take(who)
        with ExitStack() as undoing:
            undoing.callback(node.sinks.give_back, who)
            end = partial(node.sinks.give_back, who)
            ticket = node.path_listeners.open(asked, node.name, end)
            undoing.pop_all()  # the listener gives it back
        self.answer(msgspec.structs.replace(ticket, is_busy=node.has_job()))


class PathsTryHandler(AgentHandler, route=Route.PATHS_TRY, post=DRIVERS):
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


class PathsEndHandler(AgentHandler, route=Route.PATHS_END, post=DRIVERS):
    async def post(self) -> None:
        asked = self.body_as(PathEnd)
        self.answer(await self.slowly(self.node.path_listeners.end, asked.token))


# Probe routes: measure a link, in threads, as both ends block on their sockets; and devices.


class ProbeLeaseHandler(AgentHandler, route=Route.PROBE_LEASE, post=DRIVERS):
    def post(self) -> None:
        request, node = self.body_as(MeasureLease), self.node
        jobs = {
            job.placement.interface: job.record.job_id
            for job in node.jobs.active()
            if node.leases.find(job.record.job_id, job.record.attempt.number)  # not if it waits
        }
        node.turn.take(request, jobs, node.name)
        self.answer({})


class ProbeListenHandler(AgentHandler, route=Route.PROBE_LISTEN, post=GANG):
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


class ProbeSendHandler(AgentHandler, route=Route.PROBE_SEND, post=DRIVERS):
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


class ProbeDevicesHandler(AgentHandler, route=Route.PROBE_DEVICES, get=DRIVERS, post=DRIVERS):
    def get(self) -> None:
        self.answer(MeasuringDevices(self.node.devices.dtype))

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


class BenchedHandler(AgentHandler, route=Route.BENCHED, put=DRIVERS):
    def put(self) -> None:
        """Store what messages sent by this node achieved in a benchmark."""
        request, node = self.body_as(BenchedLinks), self.node
        names = {one.name for one in node.inventory.read().interfaces}
        for link in request.links:
            if link.sender != node.name or link.interface not in names or not link.backend:
                what = f"{link.sender} has not benchmarked {link.interface!r} of {node.name}"
                raise refusal(400, Kind.BAD_REQUEST, what)
        for link in request.links:
            node.links.keep(link)
        node.changed()
        self.answer({})


# Usage routes: what the node did over a time, with and without jobs.


DEFAULT_S = 3600


class UsageHandler(AgentHandler, route=Route.HISTORY, get=WATCHING):
    """Sends ``NodeHistory`` of the last hour, or from ``since`` to ``until``."""

    async def get(self) -> None:
        now_s = int(time.time())
        since_s = self.number("since", now_s - DEFAULT_S, 0)
        until_s = min(self.number("until", LARGEST, since_s), now_s)
        points = self.number("points", POINTS, 2, MOST_POINTS)
        span = span_of(since_s, until_s, now_s, points)
        usage, node = self.node.usage, self.node

        with suppress(OSError):  # a full disk: what was saved before is answered
            usage.save()
        parts = list(usage.parts())
        read = [await asyncio.to_thread(part_over, *one, span) for one in parts]
        empty = [await asyncio.to_thread(gaps, parts[0][1], span)] if parts else [()]
        self.answer(
            NodeHistory(
                node_id=node.node_id,
                node=node.name,
                begin_s=span.begin_s,
                step_s=span.step_s,
                points=span.points,
                parts=tuple(self._with_capacity(part) for part in read if part.lines),
                gaps=empty[0],
                jobs=tuple(
                    jobs_within(
                        (job.record for job in node.jobs.all()),
                        span.begin_s,
                        span.begin_s + span.points * span.step_s,
                    )
                ),
                gpu_note=node.inventory.gpus.note,
            )
        )

    def _with_capacity(self, part: HistoryPart) -> HistoryPart:
        """Add an interface's capacity: as the user gave it, or the highest that was measured."""
        if part.kind != "interface":
            return part
        links = self.node.links
        given, measured = links.given(part.key), links.measured(part.key)
        known = [given] if given else [one.capacity for one in measured]
        total = max((one.bytes_per_s for one in known), default=None)
        return msgspec.structs.replace(part, total=total)


# Trust routes: drivers exchange revocations and renewed certificates through the agent.


class TrustHandler(AgentHandler, route=Route.TRUST, get=WATCHING, put=WATCHING):
    def get(self) -> None:
        self.answer(self.node.trust.news())

    def put(self) -> None:
        news = self.body_as(TrustNews)
        self.node.take_news(news, who=self.caller_name, where=self.request.remote_ip or "")
        self.answer({})
