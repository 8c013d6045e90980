"""Launcher: the interface of everything that can start a job."""

from __future__ import annotations

from abc import ABC, abstractmethod

from jupyter_mntrain.launch.torchrun import NodeCommand
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.job import JobSpec, JobView


class Launcher(ABC):
    """Starts, shows and ends jobs. Every method is idempotent."""

    @abstractmethod
    async def render(self, spec: JobSpec) -> tuple[NodeCommand, ...]:
        """Return what :meth:`launch` would run on each node, in node-rank order; start nothing."""

    @abstractmethod
    async def launch(self, spec: JobSpec, job_id: JobId) -> JobView:
        """Start on every participant, or on none.

        After an error nothing runs and nothing is leased, unless the error names what is left.
        """

    @abstractmethod
    async def status(self, job_id: JobId) -> JobView:
        """Return the job's current state from its participants; silent ones are ``unknown``."""

    @abstractmethod
    async def stop(self, job_id: JobId, *, reason: str, grace_s: float) -> JobView:
        """End the job everywhere. Return once every reachable participant has accepted the stop.

        ``grace_s=0`` kills at once. The parts' ``leftovers`` name processes that did not die.
        """
