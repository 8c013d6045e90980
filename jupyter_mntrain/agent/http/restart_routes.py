"""Restart routes: lets a job's head start the deposited job again on the other participants."""

from __future__ import annotations

from tornado.web import HTTPError

from jupyter_mntrain.agent.gang.moved_gpus import as_it_is_now, is_of_allocation
from jupyter_mntrain.agent.http.base import AgentHandler
from jupyter_mntrain.launch.gang_start import workplace_of
from jupyter_mntrain.model.api import LeaseRequest, StartRequest
from jupyter_mntrain.model.errors import JobNotFoundError
from jupyter_mntrain.model.ids import JobId, NodeId
from jupyter_mntrain.model.lifecycle.restarts import follows, may_lead
from jupyter_mntrain.model.lifecycle.running_changes import earlier_changes, last_values
from jupyter_mntrain.model.program import program_of
from jupyter_mntrain.model.records.job import JobRecord


class RestartHandler(AgentHandler):
    """Drivers may start anything; a node may start the next attempt of a job that it leads."""

    def refuse_foreign(self, job_id: JobId) -> JobRecord:
        """The job's record, if the calling node may lead it.

        Raises:
            NotAllowedError: no driver has deposited the job here, or another node leads it.
        """
        try:
            record = self.node.jobs.get(job_id).record
        except JobNotFoundError:
            raise self.not_allowed() from None
        if not may_lead(NodeId(self.caller.name), record):
            raise self.not_allowed()
        return record

    def refuse_what_is_over(self, job_id: JobId) -> JobRecord:
        """Like :meth:`refuse_foreign`; also refuses a job that has ended for good."""
        record = self.refuse_foreign(job_id)
        if not (record.spec.max_restarts or record.was_queued):
            raise self.not_allowed()
        return record

    def refuse_other_work(self, request: StartRequest) -> None:
        """Raise NotAllowedError if a node asks for more than the driver did."""
        if self.caller.role == "driver":
            return
        record = self.refuse_foreign(request.job_id)
        if (request.spec, request.attempt) == (record.spec, record.attempt):
            return  # repeated, because the answer was lost
        self.refuse_what_is_over(request.job_id)
        if request.spec != record.spec or not follows(request.attempt, record):
            raise self.not_allowed()
        changes = earlier_changes(request.attempt)
        if changes and not last_values(changes).keys() <= program_of(request.spec).changeable:
            raise self.not_allowed()

    def lease_request(self) -> LeaseRequest:
        """The request, if the caller may make it.

        Raises:
            NotAllowedError: a node asks for more than the driver did.
        """
        if self.caller.role == "driver":
            return self.body_as(LeaseRequest)
        try:
            request = self.body_as(LeaseRequest)
        except HTTPError:
            raise self.not_allowed() from None
        record = self.refuse_what_is_over(request.job_id)
        own = next(p for p in record.attempt.placements if p.node_id == self.node.node_id)
        asked = (request.ranks, len(request.gpus), request.hold_port)
        granted = (own.nproc, len(own.gpus), None)
        # Else the node itself says which it has now, whatever this attempt had.
        is_same = is_of_allocation(self.node) or (
            (request.gpus, request.interface) == (own.gpus, own.interface)
        )
        is_same &= request.shares_gpus <= own.shares_gpus
        if not is_same or request.attempt < record.attempt.number or asked != granted:
            raise self.not_allowed()
        if request.workplace != workplace_of(record.spec):
            raise self.not_allowed()
        return as_it_is_now(self.node, request)
