"""Measuring devices: every node with its own ranks and GPUs, and no node's refusal is another's."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from jupyter_mntrain.cluster.handle import usage as measuring
from jupyter_mntrain.cluster.handle.usage import measure_devices
from jupyter_mntrain.launch.progress import Progress
from jupyter_mntrain.model.errors import NodeError, RefusedError
from jupyter_mntrain.model.records.job import Participant
from jupyter_mntrain.model.records.plan import (
    DeviceMeasurement,
    MeasureDevices,
    MeasuringDevices,
)
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
        self.said: list[tuple[str, int]] = []

    def report(self, what: str, done: int, total: int | None) -> None:
        self.said.append((what.replace("\u00a0", " "), done))


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
    assert heard.said == [
        ("measuring devices of a, at most 1 min 00 s", 0),
        ("measuring devices", 1),
        ("measuring devices of b, at most 1 min 00 s", 1),
        ("measuring devices", 2),
        ("measuring devices of c, at most 1 min 00 s", 2),
        ("measuring devices", 3),
    ]


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

    agents, heard = [Busy("a"), Busy("b"), Busy("c")], Heard()
    participants = [Participant(node=one.node) for one in agents]
    machines = ["one", "one", "another"]
    work = measure_devices(participants, agents, machines, progress=heard)  # type: ignore[arg-type]
    found = asyncio.run(work)
    assert [len(one.devices) for one in found] == [1, 1, 1]
    assert not any({"a", "b"} <= set(one) for one in beside)
    assert ("a", "c") in beside
    said = [what for what, _ in heard.said]
    assert "measuring devices of a, c, at most 2 min 00 s" in said
    assert "measuring devices of b, at most 1 min 00 s" in said


def test_what_each_node_measures_now_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    class Telling(Agent):
        def __init__(self, node: str, *dtypes: str | None) -> None:
            super().__init__(node)
            self.dtypes, self.all_told = [*dtypes], asyncio.Event()

        async def measuring_devices(self) -> MeasuringDevices:
            dtype = self.dtypes.pop(0) if self.dtypes else None
            if not self.dtypes:
                self.all_told.set()
            if dtype == "silent":
                raise NodeError("no answer", fix="wait", node=self.node)
            return MeasuringDevices(dtype)

        async def measure_devices(self, request: MeasureDevices) -> list[DeviceMeasurement]:
            await self.all_told.wait()
            return await super().measure_devices(request)

    monkeypatch.setattr(measuring, "LOOK_S", 0.0)
    agents, heard = [Telling("a", None, "float32", "silent", "float32", "bfloat16")], Heard()
    participants = [Participant(node=one.node) for one in agents]
    asyncio.run(measure_devices(participants, agents, [""], progress=heard))  # type: ignore[arg-type]
    assert [what for what, _ in heard.said][:4] == [
        "measuring devices of a, at most 1 min 00 s",
        "measuring devices of a (float32), at most 1 min 00 s",
        "measuring devices of a (bfloat16), at most 1 min 00 s",
        "measuring devices",
    ]
