"""Lease routes: lease GPUs and ports, and say whether a port is free."""

from __future__ import annotations

from jupyter_mntrain.agent.http.base import AgentHandler
from jupyter_mntrain.agent.http.restart_routes import RestartHandler


class LeasesHandler(RestartHandler):
    async def post(self) -> None:
        self.answer(await self.node.lease_for(self.lease_request()))


class LeaseHandler(RestartHandler):
    def delete(self, job_id: str, attempt: str) -> None:
        """Release a lease whose attempt did not start. A running attempt is ended by stop."""
        if self.caller.role == "node":
            self.refuse_what_is_over(self.job_id(job_id))
        self.node.leases.release_unstarted(self.job_id(job_id), int(attempt))
        self.node.tell_leases()
        self.answer({})


class PortHandler(AgentHandler):
    def get(self, port: str) -> None:
        interface = self.get_query_argument("interface", "") or None
        self.answer(self.node.port_status(int(port), interface))
