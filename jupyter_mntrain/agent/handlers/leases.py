"""Promising GPUs and ports."""

from __future__ import annotations

import time

from jupyter_mntrain.agent.handlers.base import AgentHandler
from jupyter_mntrain.model.api import LeaseGrant, LeaseRequest
from jupyter_mntrain.model.ids import JobId


class Leases(AgentHandler):
    def post(self) -> None:
        request = self.body_as(LeaseRequest)
        lease = self.node.lease(request)
        self.answer(
            LeaseGrant(
                address=lease.address, port=lease.port, expires_s=time.time() + request.expires_in_s
            )
        )


class LeaseItem(AgentHandler):
    def delete(self, job_id: str, attempt: str) -> None:
        """Give back what was not started; what runs is ended by stop."""
        leases = self.node.leases
        key = (JobId(job_id), int(attempt))
        if leases.is_unstarted(*key):
            leases.release(*key)
            self.node.changed()
        self.answer({})
