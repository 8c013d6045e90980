"""The end of an attempt: its memory is free, or the job says what holds it."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import msgspec
import pytest

from jupyter_mntrain.agent.attempt.directory import SupervisorStatus
from jupyter_mntrain.agent.jobs.attempt_end import RELEASE_PATIENCE_S
from jupyter_mntrain.agent.jobs.local_job import LocalJob
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
from jupyter_mntrain.telemetry.gpus import GpuReader


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
    status = SupervisorStatus(exit_code=0, ended_s=1.0)
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
