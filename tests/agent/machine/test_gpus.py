"""GPUs: which processes use them. NVML itself needs a machine with GPUs."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import psutil
import pytest

from jupyter_mntrain.agent.attempt.directory import KeeperStatus
from jupyter_mntrain.agent.jobs.attempt_end import RELEASE_PATIENCE_S
from jupyter_mntrain.agent.jobs.local_job import LocalJob
from jupyter_mntrain.agent.machine.gpus import GpuReader, _process
from jupyter_mntrain.model.ids import JobId, NodeId, Rank
from jupyter_mntrain.model.records.job import (
    Attempt,
    JobRecord,
    JobSpec,
    Leftover,
    Participant,
    PartStatus,
    Placement,
    RankStatus,
)
from jupyter_mntrain.model.records.node import Gpu, GpuProcess


def test_a_process_is_named_by_user_program_and_pid() -> None:
    me = psutil.Process()
    told = _process(os.getpid())
    assert (told.user, told.command) == (me.username(), me.name())
    assert str(told) == f"{me.username()}, {me.name()} (pid {os.getpid()})"


def test_a_process_that_is_gone_or_of_another_namespace_keeps_its_pid() -> None:
    assert str(_process(2**22 + 5)) == f"pid {2**22 + 5}"


def test_a_gpu_somebody_computes_on_is_not_idle() -> None:
    basis = {
        "index": 0,
        "uuid": "u",
        "name": "RTX",
        "memory_total_bytes": 9,
        "memory_used_bytes": 1,
    }
    assert Gpu(**basis).is_idle
    busy = Gpu(**basis, processes=(GpuProcess(pid=7, user="ada"), GpuProcess(pid=8)))
    assert not busy.is_idle
    assert busy.owners == "ada (pid 7) and pid 8"


class CardError(Exception):
    """What NVML raises."""


class NotSupportedError(CardError):
    """What this card does not tell."""


class Cards:
    """NVML of a machine with one card, which this process and one that is gone compute on."""

    NVMLError, NVMLError_NotSupported = CardError, NotSupportedError
    NVML_TEMPERATURE_GPU = 0
    GONE = 2**22 + 5

    def __init__(self, *, tells_processes: bool = True) -> None:
        self._tells_processes = tells_processes

    def nvmlInit(self) -> None: ...  # noqa: N802

    def __getattr__(self, name: str) -> Any:
        answers: dict[str, Any] = {
            "nvmlSystemGetDriverVersion": "570.1",
            "nvmlDeviceGetCount": 1,
            "nvmlDeviceGetHandleByIndex": "handle",
            "nvmlDeviceGetUUID": "GPU-1",
            "nvmlDeviceGetName": "RTX",
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=9, used=4),
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=50),
            "nvmlDeviceGetPowerUsage": 100_000,
            "nvmlDeviceGetTemperature": 60,
            "nvmlDeviceGetComputeRunningProcesses": [
                SimpleNamespace(pid=pid, usedGpuMemory=3 << 20)
                for pid in (self.GONE, os.getpid(), os.getpid())
            ],
        }

        def answer(*_: object) -> Any:
            if name == "nvmlDeviceGetComputeRunningProcesses" and not self._tells_processes:
                raise NotSupportedError
            return answers[name]

        return answer


def test_a_card_tells_who_computes_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Cards())
    (card,) = GpuReader().read()
    me = psutil.Process()
    mine = GpuProcess(pid=os.getpid(), user=me.username(), command=me.name())
    assert card.processes == (mine, GpuProcess(pid=Cards.GONE))
    assert [process.pid for process in card.processes] == [os.getpid(), Cards.GONE]
    assert (card.name, card.utilization, card.power_w) == ("RTX", 0.5, 100.0)


def test_a_card_that_keeps_its_processes_to_itself_is_still_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Cards(tells_processes=False))
    (card,) = GpuReader().read()
    assert card.processes == ()


def test_a_process_of_somebody_else_keeps_its_pid(monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(pid: int) -> psutil.Process:
        raise psutil.AccessDenied(pid)

    monkeypatch.setattr(psutil, "Process", denied)
    assert _process(7) == GpuProcess(pid=7)


def test_what_a_process_holds_after_its_end_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Cards())
    (left,) = GpuReader().held_by([Cards.GONE])
    assert (left.pid, left.status) == (Cards.GONE, "gone")
    assert left.command == "still holds 3 MiB of GPU 0"
    assert GpuReader().held_by([1]) == ()
    monkeypatch.setitem(sys.modules, "pynvml", Cards(tells_processes=False))
    assert GpuReader().held_by([Cards.GONE]) == ()


class Holding(GpuReader):
    """A driver that frees the memory of what has ended after so many looks."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    def held_by(self, pids: Collection[int]) -> tuple[Leftover, ...]:
        self.looks -= 1
        return (LEFT,) if self.looks >= 0 and LEFT.pid in pids else ()


LEFT = Leftover(pid=77, command="still holds memory", status="gone")


@pytest.mark.parametrize(("looks", "left"), [(0, ()), (1, ()), (9, (LEFT,))])
def test_an_attempt_is_over_when_its_memory_is_free_or_says_that_it_is_not(
    tmp_path: Path, looks: int, left: tuple[Leftover, ...]
) -> None:
    job = LocalJob(tmp_path, record(), Holding(looks))
    job.attempt.path.mkdir()
    status = KeeperStatus(exit_code=0, ended_s=1.0)
    (job.attempt.path / "status.json").write_bytes(msgspec.json.encode(status))
    job.poll(100.0)
    assert job.is_active == (looks > 0)
    job.poll(100.0 + RELEASE_PATIENCE_S)
    assert job.record.part.state == "succeeded"
    assert job.record.part.leftovers == left


def record() -> JobRecord:
    place = Placement(
        node_id=NodeId("1" * 32),
        node="node1",
        node_rank=0,
        first_rank=Rank(0),
        nproc=1,
        gpus=(0,),
        interface="lo",
        address="127.0.0.1",
        agent=("127.0.0.1:1",),
    )
    return JobRecord(
        job_id=JobId("j-00000001"),
        spec=JobSpec(entry=("a.py",), participants=(Participant("node1", gpus=(0,)),)),
        attempt=Attempt(
            number=1,
            placements=(place,),
            master_address="127.0.0.1",
            master_port=1,
            submitted_s=1.0,
        ),
        part=PartStatus(
            node_id=place.node_id,
            node="node1",
            state="running",
            ranks=(RankStatus(rank=Rank(0), state="running", pid=LEFT.pid),),
        ),
    )
