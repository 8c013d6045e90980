"""Source of nodes: requests them from a scheduler, reports their state, and returns them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.sources.allocation import Allocation
from jupyter_mntrain.model.sources.options import SourceOption
from jupyter_mntrain.model.sources.request import NodesRequest, SlotCommand


class NodeSource(ABC):
    """The adapter of an existing scheduler, which queues, places and isolates.

    What it gives are slots: ``NAME-0`` to ``NAME-(N-1)``. In each runs the command of the request,
    an agent, whose node in the cluster has the slot's name. A source keeps no state of its own:
    any process that knows an allocation's id and request can look at it, and give it back.

    Args of every method that takes an id: the id of an allocation, and the request for it.
    """

    name: str
    """As in ``--on NAME``, and the first part of the slots' names."""
    title: str
    """As it is written in sentences: SLURM."""
    agent_port: int | None = None
    """On which every slot's agent listens; ``None`` = any free one, as machines are shared."""

    @abstractmethod
    def options(self) -> tuple[SourceOption, ...]:
        """Return the options in addition to nodes, GPUs and time. Does not contact the
        scheduler.
        """

    async def usual_nodes(self, request: NodesRequest) -> int:  # noqa: ARG002 - most take one
        """Return the number of nodes of a request that does not give one.

        Raises:
            As :meth:`check`.
        """
        return 1

    @abstractmethod
    async def check(self, request: NodesRequest) -> None:
        """Check that the scheduler would accept the request; nothing is queued.

        Raises:
            SpecError: an option, or the form of the GPUs, cannot be meant.
            RefusedError: ``no-scheduler``: there is none here. ``scheduler-refused``: it says why;
                the fix names what to change, or what to ask its administrators for.
        """

    @abstractmethod
    def render(self, request: NodesRequest, command: SlotCommand) -> str:
        """Return what would be submitted, for people, without secrets. Does not contact the
        scheduler.
        """

    @abstractmethod
    async def submit(self, request: NodesRequest, command: SlotCommand) -> Allocation:
        """Queue the request: all nodes, or none. Returns as soon as the scheduler has it.

        Raises:
            As :meth:`check`. Nothing is queued then, and no secret is left.
        """

    @abstractmethod
    async def look(self, allocation_id: str, request: NodesRequest) -> Allocation:
        """Return an allocation's current state, by one query that is cheap enough for every few
        seconds.

        An allocation that the scheduler knows no more, or cannot be asked about, is ``unknown``,
        with the reason as its problem.
        """

    async def directory(self, allocation_id: str, request: NodesRequest) -> Path | None:  # noqa: ARG002 - a source without files needs neither
        """Return the directory of the slots' files; ``None`` if this process cannot reach it."""
        return None

    async def addresses(self, allocation_id: str, request: NodesRequest) -> dict[str, str]:  # noqa: ARG002 - a source whose agents tell it in files needs neither
        """Return the ``host:port`` at which this process reaches agents, by slot, if files do not
        say.
        """
        return {}

    async def hindrance(self, allocation_id: str, request: NodesRequest) -> Problem | None:  # noqa: ARG002 - most know of none
        """Return what keeps agents in granted slots from working together; ``None`` if nothing is
        known.
        """
        return None

    @abstractmethod
    async def save(self, allocation_id: str, request: NodesRequest) -> None:
        """Signal its programs to save and end, as the scheduler does before a time limit."""

    @abstractmethod
    async def give_back(self, allocation_id: str, request: NodesRequest) -> None:
        """End an allocation, pending or not, and everything that runs in it. Idempotent.

        Secrets are removed. Records and logs stay.

        Raises:
            RefusedError: the scheduler does not let this user end it.
        """

    async def close(self) -> None:  # noqa: B027 - most hold nothing
        """Close the connections that this process holds to agents. Allocations stay as they are."""
