"""Doctor resources: what keeps nodes from training, and what mends it at once."""

from __future__ import annotations

from jupyter_mntrain.cluster import Cluster
from jupyter_mntrain.doctor.finding import DoctorReport, Remedy
from jupyter_mntrain.doctor.workload.asked_paths import question_of_job
from jupyter_mntrain.server.handlers.base import MntrainHandler, allowed
from jupyter_mntrain.server.shown_checks import TITLES, Examination, Examine


class DoctorResource(MntrainHandler):
    @allowed
    async def post(self) -> None:
        updates, body = await self.updates(), self.body_as(Examine)
        report = await self.work(self._examine, updates.cluster, body)
        self.answer(Examination(report=report, checks=TITLES))

    def _examine(self, cluster: Cluster, asked: Examine) -> DoctorReport:
        if asked.job is None:
            return cluster.doctor.examine(asked.nodes)
        job = cluster.job(asked.job)
        question = question_of_job(job.spec())
        nodes = asked.nodes or tuple(one.node for one in job.view().attempt.placements)
        return cluster.doctor.examine(nodes, asked=question)


class RemedyResource(MntrainHandler):
    @allowed
    async def post(self) -> None:
        updates, remedy = await self.updates(), self.body_as(Remedy)
        files = updates.cluster.files
        self.answer(await self.work(self._opening.remedies.carry_out, remedy, files))
