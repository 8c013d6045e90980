"""Measuring devices: every node with its own ranks and GPUs, and no node's refusal is another's."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from jupyter_mntrain.cluster.launch.measure_devices import measure_devices
from jupyter_mntrain.launch.progress import Progress
from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.records.job import Participant
from jupyter_mntrain.model.records.plan import DeviceMeasurement, MeasureDevices
from tests.standin.devices import device


@dataclass
class Agent:
    node: str
    refuses: RefusedError | None = None
    asked: list[MeasureDevices] = field(default_factory=list)

    async def measure_devices(self, request: MeasureDevices) -> list[DeviceMeasurement]:
        self.asked.append(request)
        if self.refuses is not None:
            raise self.refuses
        return [device(ranks=request.ranks)]


class Heard(Progress):
    def __init__(self) -> None:
        self.done: list[int] = []

    def report(self, what: str, done: int, total: int | None) -> None:
        self.done.append(done)


def test_every_node_is_asked_for_what_it_would_run() -> None:
    agents = [
        Agent("a"),
        Agent("b", RefusedError("a job runs on it", fix="wait", node="b")),
        Agent("c"),
    ]
    participants = [
        Participant(node="a", nproc=2),
        Participant(node="b"),
        Participant(node="c", nproc=2, gpus=(0, 3)),
    ]
    heard = Heard()
    machines = ["one", "", "another"]
    work = measure_devices(participants, agents, machines, python="conda:lm", progress=heard)  # type: ignore[arg-type]
    found = asyncio.run(work)
    assert [one.asked for one in agents] == [
        [MeasureDevices(ranks=2, python="conda:lm")],
        [MeasureDevices(ranks=1, python="conda:lm")],
        [MeasureDevices(ranks=2, gpus=(0, 3), python="conda:lm")],
    ]
    assert [(one.node, len(one.devices)) for one in found] == [("a", 1), ("b", 0), ("c", 1)]
    assert found[1].problem is not None
    assert found[1].problem.node == "b"
    assert heard.done == [0, 1, 2, 3]


def test_nodes_of_one_machine_measure_in_turn_and_machines_at_once() -> None:
    running: list[str] = []
    beside: set[tuple[str, ...]] = set()

    class Busy(Agent):
        async def measure_devices(self, request: MeasureDevices) -> list[DeviceMeasurement]:
            running.append(self.node)
            beside.add(tuple(sorted(running)))
            await asyncio.sleep(0)
            running.remove(self.node)
            return await super().measure_devices(request)

    agents = [Busy("a"), Busy("b"), Busy("c")]
    participants = [Participant(node=one.node) for one in agents]
    work = measure_devices(participants, agents, ["one", "one", "another"])  # type: ignore[arg-type]
    found = asyncio.run(work)
    assert [len(one.devices) for one in found] == [1, 1, 1]
    assert not any({"a", "b"} <= set(one) for one in beside)
    assert ("a", "c") in beside
