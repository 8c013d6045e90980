"""Numbers of a device, without the device: torch's fake tensors refuse to be read."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial
from torch.distributed.tensor.debug import CommDebugMode
from torch.testing._internal.distributed.fake_pg import FakeStore

from jupyter_mntrain.model.records.metrics import RankEnd, RankStep
from jupyter_mntrain.telemetry.callbacks.device_number import DeviceNumber
from jupyter_mntrain.telemetry.callbacks.loops import LoopRecorder
from tests.telemetry.callbacks.conftest import Read


def test_a_number_is_that_of_its_time() -> None:
    value = torch.ones((), requires_grad=True)
    number = DeviceNumber(value)
    with torch.no_grad():
        value += 1
    assert number.is_known
    assert number.read() == 1.0


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What is done in a GPU's stream, which is never through with it."""
    done: list[object] = []
    event = SimpleNamespace(
        record=done.append, query=lambda: False, synchronize=lambda: done.append("waited")
    )
    monkeypatch.setattr(torch.cuda, "Event", lambda: event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"stream of {device}")
    return done


def test_a_gpu_is_waited_for_only_when_its_number_is_read(stream: list[object]) -> None:
    with FakeTensorMode():
        number = DeviceNumber(torch.zeros((), device="cuda", dtype=torch.bfloat16))
        assert not number.is_known
        assert stream == ["stream of cuda:0"]
        with pytest.raises(DataDependentOutputException):
            number.read()
    assert stream == ["stream of cuda:0", "waited"]


def test_a_distributed_number_is_gathered_when_all_ranks_take_it(stream: list[object]) -> None:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    try:
        mesh = DeviceMesh("cuda", [0, 1])
        with FakeTensorMode(), CommDebugMode() as taken:
            part = torch.zeros((), device="cuda")
            DeviceNumber(DTensor.from_local(part, mesh, [Partial()], run_check=False))
    finally:
        dist.destroy_process_group()
    assert taken.get_total_counts() == 1
    assert stream == ["stream of cuda:0"]


class Held(DeviceNumber):
    """Becomes known when the test says so, or never."""

    is_known = False
    error: Exception | None = None

    def read(self) -> float:
        if self.error is not None:
            raise self.error
        return super().read()


def test_a_step_is_written_when_its_numbers_are_known_or_needed(job: Path, read: Read) -> None:
    def steps() -> list[int]:
        return [one.step for one in read() if isinstance(one, RankStep)]

    loop = LoopRecorder()
    loop.begin(None, torch.device("cpu"))
    number = Held(torch.ones(()))
    loop.step(1, loss=number)
    loop.flush(waits=False)
    assert steps() == []
    number.is_known = True
    loop.flush(waits=False)
    assert steps() == [1]
    loop.step(2, loss=Held(torch.ones(())))
    loop.step(3, loss=Held(torch.ones(())))
    assert steps() == [1, 2]
    loop.end()
    assert steps() == [1, 2, 3]


def test_a_gpu_that_has_failed_does_not_hide_the_error(job: Path, read: Read) -> None:
    loop = LoopRecorder()
    loop.begin(None, torch.device("cpu"))
    number = Held(torch.ones(()))
    number.error = RuntimeError("CUDA error: an illegal memory access was encountered")
    loop.step(1, loss=number)
    loop.end(ok=False, message="ValueError: the cause")
    end = read()[-1]
    assert isinstance(end, RankEnd)
    assert (end.ok, end.message) == (False, "ValueError: the cause")
