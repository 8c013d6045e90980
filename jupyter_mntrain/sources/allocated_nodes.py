"""Allocated nodes: asks a source for nodes, and makes nodes of a cluster of what it gives."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from jupyter_mntrain.cluster.loop import LoopThread
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.errors import MntrainError, RefusedError, error_of
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.job import TERMINAL
from jupyter_mntrain.model.sources.allocation import Allocation
from jupyter_mntrain.model.sources.changes import AllocationChange, changes
from jupyter_mntrain.model.sources.request import (
    PYTHON,
    SECRETS,
    SLOT,
    STATE,
    NodesRequest,
    SlotCommand,
)
from jupyter_mntrain.model.sources.slots import AllocationFile, write_allocation
from jupyter_mntrain.model.sources.source import NodeSource
from jupyter_mntrain.trust.registrar import MOST_USES

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Cluster

LOOK_EVERY_S = tunables.seconds("sources.look_interval_s")
INVITED_S = tunables.seconds("sources.invitation_life_s")
USES_PER_SLOT = tunables.count("sources.uses_per_slot")

TOKEN = "token"  # noqa: S105 - the name of a file


class AllocatedNodes:
    """Nodes of a source, from the request for them until they are given back.

    Safe from any thread. Whoever closes it leaves the allocation as it is.

    Args:
        cluster: that they join, whose authority is this user's.
    """

    def __init__(
        self, cluster: Cluster, source: NodeSource, request: NodesRequest, allocation: Allocation
    ) -> None:
        self.allocation = allocation
        self.request = request
        self._cluster = cluster
        self._source = source
        self._told: AllocationFile | None = None
        self._directory: Path | None = None
        self._loop = LoopThread(f"mntrain-{source.name}")

    @classmethod
    def ask(cls, cluster: Cluster, source: NodeSource, request: NodesRequest) -> AllocatedNodes:
        """Queue a request, with an invitation to the cluster for the agents that it starts.

        Raises:
            SpecError, RefusedError: as :meth:`NodeSource.submit`.
        """
        loop = LoopThread(f"mntrain-{source.name}")
        try:
            loop.run(source.check(request))
            # One that is requeued may join on other machines, and without its former state.
            uses = min(MOST_USES, request.nodes * USES_PER_SLOT)
            token = cluster.membership.invite(uses=uses, expires_in_s=INVITED_S)
            allocation = loop.run(source.submit(request, agent_command(token, source.agent_port)))
        finally:
            loop.close()
        return cls(cluster, source, request, allocation)

    def look(self) -> tuple[AllocationChange, ...]:
        """Ask the source how the allocation is, tell its agents, and say what has changed."""
        before = self.allocation
        now = self._loop.run(self._source.look(before.id, self.request))
        if now.state == "unknown":
            return ()
        self.allocation = now
        if self._directory is None:
            self._directory = self._loop.run(self._source.directory(now.id, self.request))
        if self._directory is not None:
            self._tell(self._directory)
        elif now.state == "running":
            reached = self._loop.run(self._source.addresses(now.id, self.request))
            self._cluster.discovery.reach(reached, allocation_file(now).gone)
        return changes(before, now)

    def wait(self, on_change: Callable[[AllocationChange], None] = lambda _: None) -> None:
        """Wait until every slot's node is up in the cluster. Ctrl-C ends the waiting only.

        Raises:
            RefusedError: it has ended, or will never be granted; it is not given back.
        """
        while True:
            for change in self.look():
                on_change(change)
            self._refuse()
            if set(self.request.slots) <= self._up():
                return
            time.sleep(LOOK_EVERY_S)

    def give_back(self) -> None:
        """End the allocation, with all that runs in it: its jobs are canceled, not failed."""
        if self._directory is not None:
            told = msgspec.structs.replace(allocation_file(self.allocation), is_canceled=True)
            write_allocation(self._directory, told)
        else:
            self._cancel_jobs()
        self._loop.run(self._source.give_back(self.allocation.id, self.request))

    def close(self) -> None:
        self._loop.run(self._source.close())
        self._loop.close()

    def _cancel_jobs(self) -> None:
        """Agents that no file tells would take the end for that of nodes that were taken."""
        slots = set(self.request.slots)
        for view in self._cluster.jobs():
            members = {one.node for one in view.spec.participants}
            if view.state not in TERMINAL and members <= slots:
                with suppress(MntrainError):  # the allocation ends all the same
                    self._cluster.job(view.job_id).stop()

    def _tell(self, directory: Path) -> None:
        told = allocation_file(self.allocation)
        if told != self._told:
            write_allocation(directory, told)
            self._told = told
        self._cluster.discovery.follow(directory)

    def _up(self) -> set[str]:
        return {node.name for node in self._cluster.nodes() if node.liveness == "up"}

    def _refuse(self) -> None:
        now = self.allocation
        if now.waiting is not None and not now.waiting.can_end:
            raise error_of(now.waiting.reason)
        if now.is_over:
            raise error_of(now.problem) if now.problem else _ended(now)


def agent_command(token: str, port: int | None = None) -> SlotCommand:
    """An agent in a slot.

    Args:
        port: on which it listens; ``None`` = any free one.
    """
    words = (PYTHON, "-m", "jupyter_mntrain.agent", "join")
    place = ("--slot", f"{STATE}/{SLOT}", "--token-file", f"{SECRETS}/{TOKEN}")
    listens = () if port is None else ("--port", str(port))
    return SlotCommand((*words, *place, *listens), secrets={TOKEN: token})


def allocation_file(allocation: Allocation) -> AllocationFile:
    """What the agents of an allocation are told of it."""
    gone = {
        slot.name: slot.problem
        for slot in allocation.slots
        if slot.problem is not None and slot.state in ("down", "gone")
    }
    is_canceled = allocation.outcome == "canceled"
    return AllocationFile(
        ends_s=allocation.ends_s, ending=allocation.problem, is_canceled=is_canceled, gone=gone
    )


def _ended(allocation: Allocation) -> RefusedError:
    if allocation.outcome == "canceled":
        cause = f"allocation {allocation.id} was canceled"
        return RefusedError(cause, kind=Kind.NODES_TAKEN, fix="ask for nodes again")
    return RefusedError(
        f"allocation {allocation.id} has ended: its agents ended",
        kind=Kind.NODES_TAKEN,
        fix="see its log for why",
    )
