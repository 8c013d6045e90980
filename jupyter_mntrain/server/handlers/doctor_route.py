"""Doctor resources: finds what keeps nodes from training, and applies fixes."""

from __future__ import annotations

from functools import partial

from jupyter_mntrain.cluster import Cluster
from jupyter_mntrain.cluster.handle.large_files import ClusterFiles
from jupyter_mntrain.doctor.finding import DoctorReport, Remedy
from jupyter_mntrain.http.json_handler import refusal
from jupyter_mntrain.launch.files.names import LargeName, parse_large_name
from jupyter_mntrain.launch.progress import SILENT, Progress
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.server.handlers.base import MntrainHandler, allowed
from jupyter_mntrain.server.long_works import WorkState
from jupyter_mntrain.server.shown_checks import TITLES, DoctorAnswer, DoctorRequest
from jupyter_mntrain.server.updates import PageUpdates


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
