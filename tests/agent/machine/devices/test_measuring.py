"""Device meter: what is refused, what ranks are measured with, and what is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from jupyter_mntrain.agent.machine.devices import measuring
from jupyter_mntrain.agent.machine.devices.device_book import DeviceBook
from jupyter_mntrain.agent.machine.devices.measuring import BESIDE_A_JOB, DeviceMeter
from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.node import FoundWorkplace, Gpu, Workplace
from jupyter_mntrain.model.records.plan import DeviceMeasurement, MeasureDevices
from tests.standin.devices import device
from tests.standin.nodes import gpu


@dataclass
class Machine:
    """A machine whose programs tell, for each rank, what ``speeds`` says."""

    directory: Path
    gpus: tuple[Gpu, ...] = ()
    lacks: tuple[Problem, ...] = ()
    speeds: tuple[float, ...] = (1e11,)
    disturbed: str = ""
    environments: list[Mapping[str, str]] = field(default_factory=list)
    asked: list[Any] = field(default_factory=list)

    def read(self) -> tuple[Gpu, ...]:
        return self.gpus

    def look(self, asked: Workplace) -> FoundWorkplace:
        self.asked.append(asked)
        return FoundWorkplace(python=asked.python, lacks=self.lacks)

    async def run(
        self,
        python: str,
        kind: str,
        environments: Sequence[Mapping[str, str]],
        dtypes: list[str],
        begins: Callable[[str], None],
    ) -> list[list[DeviceMeasurement]]:
        begins(dtypes[-1])
        self.environments = list(environments)
        self.asked.append((python, kind))
        return [
            [device(dtype, speed, disturbed=self.disturbed) for dtype in dtypes]
            for speed in self.speeds
        ]

    def measure(
        self, request: MeasureDevices | None = None, jobs: Sequence[bool] = (False,)
    ) -> tuple[DeviceMeasurement, ...]:
        """Args: jobs: whether there is one, at each look."""
        looks = iter([*jobs, jobs[-1]])
        measuring = self.meter().measure(request or MeasureDevices(), "node1", lambda: next(looks))
        return asyncio.run(measuring)

    def meter(self) -> DeviceMeter:
        return DeviceMeter("/usr/bin/python3", self, self, self.book)  # type: ignore[arg-type]

    @property
    def kept(self) -> tuple[DeviceMeasurement, ...]:
        return self.book.valid("EPYC", 4.0, self.gpus, "2.13.0")

    @property
    def book(self) -> DeviceBook:
        return DeviceBook(self.directory / "devices.json")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path)
    monkeypatch.setattr(measuring, "run_programs", made.run)
    monkeypatch.setattr(measuring, "usable_cpus", lambda: 4)
    monkeypatch.setattr(measuring, "cores", lambda: 4.0)
    monkeypatch.setattr(measuring, "read_cpu_model", lambda: "EPYC")
    return made


def test_ranks_are_measured_at_once_with_their_share_of_the_cores(machine: Machine) -> None:
    machine.speeds = (9e10, 8e10)
    measured = machine.measure(MeasureDevices(ranks=2))
    assert [one["OMP_NUM_THREADS"] for one in machine.environments] == ["2", "2"]
    assert [one["LOCAL_RANK"] for one in machine.environments] == ["0", "1"]
    assert all(one["LOCAL_WORLD_SIZE"] == "2" for one in machine.environments)
    assert [(one.dtype, one.flops_per_s) for one in measured] == [
        ("float32", 8e10),
        ("bfloat16", 8e10),
    ], "the slowest, which others wait for"
    assert all((one.ranks, one.cpus, one.device) == (2, 4.0, "EPYC") for one in measured)
    assert machine.kept == measured
    assert machine.asked == [Workplace(trains=True), ("/usr/bin/python3", "cpu")]


def test_each_gpu_is_measured_by_a_process_that_sees_only_it(machine: Machine) -> None:
    machine.gpus, machine.speeds = (gpu(0), gpu(1), gpu(2)), (1e13, 2e13)
    measured = machine.measure(MeasureDevices(gpus=(2, 0), dtypes=("bfloat16",)))
    assert [one["CUDA_VISIBLE_DEVICES"] for one in machine.environments] == ["GPU-2", "GPU-0"]
    assert [(one.gpu, one.uuid, one.flops_per_s) for one in measured] == [
        (2, "GPU-2", 1e13),
        (0, "GPU-0", 2e13),
    ]
    assert machine.kept == measured


def test_a_jobs_own_interpreter_is_measured_and_said(machine: Machine) -> None:
    measured = machine.measure(MeasureDevices(python="/env/bin/python"))
    assert {one.python for one in measured} == {"/env/bin/python"}
    assert machine.environments[0]["PATH"].startswith("/env/bin:")


def test_nothing_is_measured_beside_a_job(machine: Machine) -> None:
    with pytest.raises(RefusedError) as caught:
        machine.measure(jobs=[True])
    assert (caught.value.kind, caught.value.node) == (Kind.STILL_RUNNING, "node1")
    assert machine.environments == []


def test_a_job_that_begins_meanwhile_is_said(machine: Machine) -> None:
    machine.disturbed = "alongside other processes"
    measured = machine.measure(jobs=[False, True])
    words = f"alongside other processes, {BESIDE_A_JOB}"
    assert [one.disturbed for one in measured] == [words, words]
    assert machine.kept == measured


def test_a_node_whose_interpreter_lacks_torch_says_so(machine: Machine) -> None:
    machine.lacks = (Problem(kind=Kind.NO_MODULE, cause="torch is not installed", fix="do"),)
    with pytest.raises(RefusedError) as caught:
        machine.measure()
    assert (caught.value.kind, caught.value.node) == (Kind.NO_MODULE, "node1")
    assert machine.environments == []


def test_a_gpu_that_is_not_there_is_refused(machine: Machine) -> None:
    machine.gpus = (gpu(0),)
    with pytest.raises(RefusedError) as caught:
        machine.measure(MeasureDevices(gpus=(1,)))
    assert (caught.value.kind, caught.value.node) == (Kind.NO_GPU, "node1")


def test_two_measurements_at_once_would_disturb_each_other(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    meter, request = machine.meter(), MeasureDevices()
    begun, over = asyncio.Event(), asyncio.Event()

    async def run(*given: Any) -> list[list[DeviceMeasurement]]:
        begun.set()
        await over.wait()
        return await machine.run(*given)

    async def both() -> None:
        first = asyncio.ensure_future(meter.measure(request, "node1", lambda: False))
        await begun.wait()
        with pytest.raises(RefusedError) as caught:
            await meter.measure(request, "node1", lambda: False)
        assert caught.value.node == "node1"
        over.set()
        assert len(await first) == 2
        assert meter.dtype is None, "nothing is measured any more"
        assert len(await meter.measure(request, "node1", lambda: False)) == 2, "it is free again"

    monkeypatch.setattr(measuring, "run_programs", run)
    asyncio.run(both())


def test_what_a_program_failed_with_is_said_of_this_node(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(*_: Any) -> list[list[DeviceMeasurement]]:
        raise RefusedError("it failed", fix="look")

    monkeypatch.setattr(measuring, "run_programs", run)
    with pytest.raises(RefusedError) as caught:
        machine.measure()
    assert (caught.value.node, caught.value.fix) == ("node1", "look")
    assert machine.kept == ()
