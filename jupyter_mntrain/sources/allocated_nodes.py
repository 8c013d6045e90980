"""Allocated nodes: requests nodes from a scheduler, and makes them members of a cluster."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from jupyter_mntrain.cluster.loop import LoopThread
from jupyter_mntrain.model.errors import MntrainError, error_of
from jupyter_mntrain.model.records.job import TERMINAL
from jupyter_mntrain.model.sources.slots import AllocationFile, told_of, write_allocation
from jupyter_mntrain.model.sources.source import (
    PYTHON,
    SECRETS,
    SLOT,
    STATE,
    Allocation,
    AllocationChange,
    NodeSource,
    NodesRequest,
    SlotCommand,
    changes,
)
from jupyter_mntrain.sources.allocation_book import AllocationNote, reach_slots
from jupyter_mntrain.sources.awaited_launch import LOOK_EVERY_S, refusal_of
from jupyter_mntrain.trust.registrar import MOST_USES

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Cluster

INVITED_S = 30 * 86_400.0
"""Validity of the invitation for the agents of an allocation: it may wait in a queue for so
long."""
USES_PER_SLOT = 4
"""Machines that may join with it, per node: a requeued job gets others, where states are not
shared."""

TOKEN = "token"  # noqa: S105 - the name of a file


class AllocatedNodes:
    """Nodes of a scheduler, from the request for them until they are given back.

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
        self._is_given_back = False
        self._loop = LoopThread(f"mntrain-{source.name}")

    @classmethod
    def ask(
        cls,
        cluster: Cluster,
        source: NodeSource,
        request: NodesRequest,
        idle_s: float | None = None,
    ) -> AllocatedNodes:
        """Submit a request, with an invitation to the cluster for the agents that it starts.

        Args:
            idle_s: after so long without a job they give the nodes back; ``None`` = never.

        Raises:
            SpecError, RefusedError: as :meth:`NodeSource.submit`.
        """
        loop = LoopThread(f"mntrain-{source.name}")
        try:
            loop.run(source.check(request))
            # One that is requeued may join on other machines, and without its former state.
            uses = min(MOST_USES, request.nodes * USES_PER_SLOT)
            token = cluster.membership.invite(uses=uses, expires_in_s=INVITED_S)
            command = agent_command(token, source.agent_port, idle_s)
            allocation = loop.run(source.submit(request, command))
        finally:
            loop.close()
        return cls(cluster, source, request, allocation)

    def look(self) -> tuple[AllocationChange, ...]:
        """Ask the scheduler for the allocation's state, pass it on to the agents, and return what
        changed.

        Raises:
            RefusedError: the scheduler knows it no more, and we have not given it back.
        """
        before = self.allocation
        now = self._loop.run(self._source.look(before.id, self.request))
        if now.state == "unknown":
            if (gone := refusal_of(now)) is None:
                return ()
            if not self._is_given_back:
                raise gone
            now = msgspec.structs.replace(before, state="ended", outcome="canceled", waiting=None)
        self.allocation = now
        if self._directory is None:
            self._directory = self._loop.run(self._source.directory(now.id, self.request))
        if self._directory is not None:
            self._tell(self._directory)
        else:
            reach_slots(self._cluster, self._source, now.id, self.request)
            self._cluster.discovery.take_back(told_of(now).gone)
        return changes(before, now)

    def note(self, cluster: str) -> AllocationNote:
        """Return what the allocation book stores about this allocation.

        Args:
            cluster: its name.
        """
        directory = self._loop.run(self._source.directory(self.allocation.id, self.request))
        return AllocationNote(cluster, self.allocation.id, self.request, str(directory or ""))

    def wait(
        self,
        on_change: Callable[[AllocationChange], None] = lambda _: None,
        on_look: Callable[[], None] = lambda: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Wait until every slot's node is up in the cluster. Ctrl-C ends only the wait.

        Args:
            on_look: called after each look, also if nothing has changed.
            sleep: waits until the next look; what it raises ends the waiting.

        Raises:
            RefusedError: it has ended, or will never be granted; it is not given back.
        """
        examined = 0
        while True:
            for change in self.look():
                on_change(change)
            on_look()
            self._refuse()
            if self.are_up:
                return
            if self.allocation.state == "running" and self.allocation.grants != examined:
                examined = self.allocation.grants
                self._refuse_hindrance()
            sleep(LOOK_EVERY_S)

    @property
    def are_up(self) -> bool:
        """Whether every slot's node is up in the cluster."""
        up = {node.name for node in self._cluster.nodes() if node.liveness == "up"}
        return set(self.request.slots) <= up

    def give_back(self) -> None:
        """End the allocation and everything that runs in it. Its jobs are canceled, not failed."""
        if self._directory is None:
            self._cancel_jobs()
        elif self._directory.is_dir():
            told = msgspec.structs.replace(told_of(self.allocation), is_canceled=True)
            write_allocation(self._directory, told)
        self._is_given_back = True
        self._loop.run(self._source.give_back(self.allocation.id, self.request))

    def close(self) -> None:
        self._loop.close()

    def _cancel_jobs(self) -> None:
        """Cancel the allocation's jobs: agents that read no file would report the nodes as taken
        away.
        """
        slots = set(self.request.slots)
        for view in self._cluster.jobs():
            members = {one.node for one in view.spec.participants}
            if view.state not in TERMINAL and members <= slots:
                with suppress(MntrainError):  # the allocation ends all the same
                    self._cluster.job(view.job_id).stop()

    def _tell(self, directory: Path) -> None:
        told = told_of(self.allocation)
        if told != self._told and directory.is_dir():  # whoever gave it back has removed it
            write_allocation(directory, told)
            self._told = told
        self._cluster.discovery.follow(directory)

    def _refuse_hindrance(self) -> None:
        told = self._loop.run(self._source.hindrance(self.allocation.id, self.request))
        if told is not None:
            raise error_of(told)

    def _refuse(self) -> None:
        over = refusal_of(self.allocation)
        if over is not None:
            raise over


def agent_command(token: str, port: int | None = None, idle_s: float | None = None) -> SlotCommand:
    """Return the command that runs an agent in a slot.

    Args:
        port: on which it listens; ``None`` = any free one.
        idle_s: after so long without a job it ends; ``None`` = never.
    """
    words = (PYTHON, "-m", "jupyter_mntrain.agent", "join")
    place = ("--slot", f"{STATE}/{SLOT}", "--token-file", f"{SECRETS}/{TOKEN}")
    listens = () if port is None else ("--port", str(port))
    idle = () if idle_s is None else ("--idle", f"{idle_s:.0f}s")
    return SlotCommand((*words, *place, *listens, *idle), secrets={TOKEN: token})
