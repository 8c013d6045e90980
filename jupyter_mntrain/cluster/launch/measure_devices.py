"""Device measurement: measures the CPUs and GPUs of all machines at once, as a job uses them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from jupyter_mntrain.cluster.agents.client import AgentClient
from jupyter_mntrain.launch.progress import SILENT, Progress
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import MntrainError
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
        progress: counts the nodes that are done, with those that measure now and how long it will
            take at most.
    """
    turns = _Turns(progress, [client.node for client in clients], machines)

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
        nodes: their names.
        machines: that they run on.
    """

    def __init__(self, progress: Progress, nodes: Sequence[str], machines: Sequence[str]) -> None:
        self._progress, self._nodes, self._machines = progress, nodes, machines
        self._locks = {machine: asyncio.Lock() for machine in machines if machine}
        self._left, self._now = set(range(len(nodes))), dict[int, None]()

    @asynccontextmanager
    async def taken(self, place: int) -> AsyncIterator[None]:
        """Hold a node's turn, once its machine is free."""
        async with self._locks.get(self._machines[place]) or asyncio.Lock():
            self._now[place] = None
            self._tell()
            try:
                yield
            finally:
                del self._now[place]
                self._left.discard(place)
                self._tell()

    def _tell(self) -> None:
        names = some_of([self._nodes[place] for place in self._now])
        queues = Counter(self._machines[place] or place for place in self._left)
        most_s = max(queues.values(), default=0) * DEVICES_LIMIT_S
        what = f"{DOING} of {names}, at most {duration_text(most_s)}" if names else DOING
        self._progress.report(what, len(self._nodes) - len(self._left), len(self._nodes))
