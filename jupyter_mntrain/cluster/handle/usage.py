"""Cluster usage: how busy nodes were over time, and how fast their devices are."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from math import ceil
from typing import Final

from jupyter_mntrain.cluster.agents.client import AgentClient
from jupyter_mntrain.cluster.session import DriverSession
from jupyter_mntrain.launch.progress import SILENT, Progress
from jupyter_mntrain.metrics.node_history import LONGEST_S, MOST_POINTS, POINTS, NodeHistory
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import MntrainError, bad_argument
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.quantities import duration_text
from jupyter_mntrain.model.records.job import Participant
from jupyter_mntrain.model.records.plan import (
    DEVICES_LIMIT_S,
    DeviceMeasurement,
    MeasureDevices,
)
from jupyter_mntrain.model.text.brief import some_of

DOING = "measuring devices"

LOOK_S = 1.0
"""Interval of asking a node which dtype it measures."""


class NodeDevices(Record, frozen=True):
    """The measurements of a node, or why it has none.

    Args:
        node: its name.
    """

    node: str
    devices: tuple[DeviceMeasurement, ...] = ()
    problem: Problem | None = None


async def measure_devices(
    participants: Sequence[Participant],
    clients: Sequence[AgentClient],
    machines: Sequence[str],
    *,
    python: str | None = None,
    progress: Progress = SILENT,
) -> tuple[NodeDevices, ...]:
    """Measure the devices of participants, with as many ranks as each of them has.

    Args:
        clients: their agents, in the same order.
        machines: that they run on: agents of one machine measure in turn, as one slows the other.
            Empty names are machines of their own.
        python: of the job, as in a launch; ``None``: the agents' own.
        progress: counts the nodes that are done, with those that measure now, in which dtype, and
            how long it will take at most.
    """
    turns = _Turns(progress, clients, machines)

    async def measured(place: int) -> NodeDevices:
        asked, client = participants[place], clients[place]
        request = MeasureDevices(ranks=asked.nproc, gpus=asked.gpus, python=python)
        async with turns.taken(place):
            try:
                return NodeDevices(client.node, tuple(await client.measure_devices(request)))
            except MntrainError as error:
                return NodeDevices(client.node, problem=error.problem)

    return tuple(await asyncio.gather(*map(measured, range(len(participants)))))


class _Turns:
    """Makes nodes of one machine measure in turn, and reports the progress with the time left.

    Args:
        clients: the nodes' agents.
        machines: that they run on.
    """

    def __init__(
        self, progress: Progress, clients: Sequence[AgentClient], machines: Sequence[str]
    ) -> None:
        self._progress, self._clients, self._machines = progress, clients, machines
        self._locks = {machine: asyncio.Lock() for machine in machines if machine}
        self._left = set(range(len(clients)))
        self._now: dict[int, str | None] = {}
        """The dtype that each node measures now; ``None`` = it has not begun with one."""

    @asynccontextmanager
    async def taken(self, place: int) -> AsyncIterator[None]:
        """Hold a node's turn, once its machine is free."""
        async with self._locks.get(self._machines[place]) or asyncio.Lock():
            self._now[place] = None
            self._tell()
            watching = asyncio.ensure_future(self._watch(place))
            try:
                yield
            finally:
                watching.cancel()
                del self._now[place]
                self._left.discard(place)
                self._tell()

    async def _watch(self, place: int) -> None:
        """Report each dtype that a node begins with. Runs until it is canceled."""
        while True:
            await asyncio.sleep(LOOK_S)
            with suppress(MntrainError):  # the measurement itself tells that it does not answer
                dtype = (await self._clients[place].measuring_devices()).dtype
                if dtype != self._now[place]:
                    self._now[place] = dtype
                    self._tell()

    def _tell(self) -> None:
        names = some_of([self._doing(place) for place in self._now])
        queues = Counter(self._machines[place] or place for place in self._left)
        most_s = max(queues.values(), default=0) * DEVICES_LIMIT_S
        what = f"{DOING} of {names}, at most {duration_text(most_s)}" if names else DOING
        done = len(self._clients) - len(self._left)
        self._progress.report(what, done, len(self._clients))

    def _doing(self, place: int) -> str:
        node, dtype = self._clients[place].node, self._now[place]
        return node if dtype is None else f"{node} ({dtype})"


HOUR_S: Final = 3600.0


class ClusterUsage:
    """The histories of a cluster's nodes, from :attr:`Cluster.usage`. Safe from any thread."""

    def __init__(self, driver: DriverSession) -> None:
        self._driver = driver

    def history(
        self,
        node: str,
        *,
        last_s: float = HOUR_S,
        until_s: float | None = None,
        points: int = POINTS,
        progress: Progress = SILENT,
    ) -> NodeHistory:
        """Ask a node for its past use of CPUs, GPUs and interfaces, with the jobs at that time.

        Its agent keeps one value per second for an hour, one per minute for a day and one per 10
        minutes for a week. The finest that reach back are taken, joined to ``points``.

        Args:
            node: name, id or host name.
            last_s: seconds before the end, at most a week.
            until_s: Unix time of the end; default: now.
            points: the most that a line has, 2 to ``MOST_POINTS``.

        Raises:
            SpecError: the node is unknown, or there is no such time or number of points.
            NodeError: it does not answer.
        """
        if not last_s > 0:
            raise bad_argument("last_s", last_s, "seconds, more than 0")
        if not 2 <= points <= MOST_POINTS:
            raise bad_argument("points", points, f"2 to {MOST_POINTS}")
        self._driver.search.wait_until_known([node], progress)
        client = self._driver.search.client(node)
        end_s = self._driver.clock.time() if until_s is None else until_s
        since_s = int(end_s - min(last_s, LONGEST_S))
        return self._driver.loop.run(client.node_history(max(0, since_s), ceil(end_s), points))

    def measure_devices(
        self,
        participants: Sequence[Participant],
        *,
        python: str | None = None,
        progress: Progress = SILENT,
    ) -> tuple[NodeDevices, ...]:
        """Measure the speed of each node's CPU or GPUs with all of its participant's ranks at once,
        about 10 s per dtype.

        All machines measure at once, nodes of one machine in turn; their agents keep the results.

        Args:
            participants: nodes with numbers of processes, and GPUs.
            python: interpreter of the job on the nodes; default: that of the agent.

        Returns:
            One for each participant: what was measured, or why it was not.

        Raises:
            SpecError: a node is unknown.
            NodeError: one has not answered yet.
        """
        clients = [self._driver.search.client(one.node) for one in participants]
        machines = [self._driver.search.info(one.node).boot_id for one in participants]
        work = measure_devices(participants, clients, machines, python=python, progress=progress)
        return self._driver.loop.run(work)
