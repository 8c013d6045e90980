"""Device measurement: what the CPUs and GPUs of nodes do, all machines at once, as in a job."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from jupyter_mntrain.cluster.agents.client import AgentClient
from jupyter_mntrain.launch.progress import SILENT, Count, Progress
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.job import Participant
from jupyter_mntrain.model.records.plan import DeviceMeasurement, MeasureDevices

DOING = "measuring devices"


class NodeDevices(Record, frozen=True):
    """What a node measured, or why it did not.

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
    """Measure the devices that participants would use, with as many ranks.

    Args:
        clients: their agents, in the same order.
        machines: that they run on: agents of one machine measure in turn, as one slows the other.
            Empty names are machines of their own.
        python: of the job, as in a launch; ``None``: the agents' own.
        progress: counts the nodes that are done.
    """
    count = Count(progress, DOING, len(participants))
    turns = {machine: asyncio.Lock() for machine in machines if machine}

    async def in_turn(machine: str, participant: Participant, client: AgentClient) -> NodeDevices:
        async with turns.get(machine) or asyncio.Lock():
            return await measured(participant, client)

    async def measured(participant: Participant, client: AgentClient) -> NodeDevices:
        request = MeasureDevices(ranks=participant.nproc, gpus=participant.gpus, python=python)
        try:
            return NodeDevices(client.node, tuple(await client.measure_devices(request)))
        except MntrainError as error:
            return NodeDevices(client.node, problem=error.problem)
        finally:
            count.more()

    each = zip(machines, participants, clients, strict=True)
    return tuple(await asyncio.gather(*(in_turn(*one) for one in each)))
