"""Node resources: nodes, invitations, links, the doctor, the benchmark, and the own machine."""

from __future__ import annotations

import math
from functools import partial

from jupyter_mntrain.cluster import Cluster
from jupyter_mntrain.cluster.agents.address import own_networks, parse_address, refuse_elsewhere
from jupyter_mntrain.cluster.handle.large_files import ClusterFiles
from jupyter_mntrain.command_line.token_input import piped
from jupyter_mntrain.doctor.check import DoctorReport, Remedy
from jupyter_mntrain.http.json_handler import RequestRefusedError, refusal
from jupyter_mntrain.launch.files.names import LargeName, parse_large_name
from jupyter_mntrain.launch.progress import SILENT, Progress
from jupyter_mntrain.metrics.node_history import LONGEST_S, MOST_POINTS, POINTS
from jupyter_mntrain.model.api import DEFAULT_PORT
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.node import NodeView
from jupyter_mntrain.server import own_machine
from jupyter_mntrain.server.benches import BeginBench
from jupyter_mntrain.server.handlers.base import MntrainHandler, allowed
from jupyter_mntrain.server.long_works import WorkState
from jupyter_mntrain.server.messages import (
    TITLES,
    AddNode,
    DoctorAnswer,
    DoctorRequest,
    Invitation,
    Invite,
    JoinCluster,
    MakeNode,
    MeasureLinks,
)
from jupyter_mntrain.server.updates import PageUpdates
from jupyter_mntrain.trust.joining.token import read_token
from jupyter_mntrain.verbs.nodes.installing.facts import needed_versions
from jupyter_mntrain.verbs.nodes.installing.plan import TOKEN_LIFE_S

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


# Routes that change the machine of the Jupyter server, and no other machine.


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


# Doctor resources: finds what keeps nodes from training, and applies fixes.


class DoctorResource(MntrainHandler):
    @allowed
    async def post(self) -> None:
        updates, asked = await self.updates(), self.body_as(DoctorRequest)
        report = await self.work(_examined, _asked_of(updates, asked), asked)
        self.answer(DoctorAnswer(report=report, checks=TITLES))


class DeepDoctorResource(MntrainHandler):
    """Starts a job to see whether it works, as ``--deep`` does."""

    @allowed
    async def post(self) -> None:
        updates, asked = await self.updates(), self.body_as(DoctorRequest)
        if asked.job is None or asked.nodes:
            raise refusal(
                400, Kind.BAD_REQUEST, "only a job can be tried, and only on its own nodes"
            )
        do = partial(_tried, _asked_of(updates, asked), asked, self.person)
        self.answer(await self.work(self._opening.works.carry_out, asked, do))


class RemedyResource(MntrainHandler):
    @allowed
    async def post(self) -> None:
        updates, remedy = await self.updates(), self.body_as(Remedy)
        do = partial(_pushed, updates.cluster.files, parse_large_name(remedy.push), remedy)
        self.answer(await self.work(self._opening.works.carry_out, remedy, do))


def _asked_of(updates: PageUpdates, asked: DoctorRequest) -> Cluster:
    return updates.cluster if asked.job is None else updates.clusters.of_job(JobId(asked.job))


def _examined(cluster: Cluster, asked: DoctorRequest, progress: Progress = SILENT) -> DoctorReport:
    if asked.job is None:
        return cluster.doctor.examine(asked.nodes, progress=progress)
    return cluster.doctor.examine(spec=cluster.job(asked.job).spec(), progress=progress)


def _tried(cluster: Cluster, asked: DoctorRequest, person: str, progress: Progress) -> WorkState:
    report = _examined(cluster, asked, progress)
    spec = cluster.job(JobId(asked.job or "")).spec()
    report = cluster.trial.run(spec, report, submitted_by=person, progress=progress)
    return WorkState(doctor=DoctorAnswer(report=report, checks=TITLES))


def _pushed(files: ClusterFiles, name: LargeName, remedy: Remedy, progress: Progress) -> WorkState:
    pushed = files.push(name, [remedy.node], source=remedy.source, progress=progress)
    return WorkState(problem=next(iter(pushed.failed.values()), None))


# Bench resource: starts the collective benchmark and reports its progress.


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
