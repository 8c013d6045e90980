"""What the owner's word means for jobs that run: at the end of the hours, and when drained."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec

from jupyter_mntrain.agent.daemon.owner import Keeping
from jupyter_mntrain.agent.membership.availability import NodeAvailability, availability_file
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId, NodeId
from jupyter_mntrain.model.lifecycle.state import apply, new_part
from jupyter_mntrain.model.records.node import Availability, Drain
from jupyter_mntrain.trust.audit import Audit
from tests.agent.daemon.owner.test_hours import at, zone

__all__ = ["zone"]  # used by its name

NIGHTS = "Mon-Fri 19:00-07:00"


class Job:
    """As much of a local job as is asked."""

    def __init__(self, *, is_queued: bool = False, node_rank: int = 0) -> None:
        self.record: Any = SimpleNamespace(
            job_id=JobId("j-00000001"),
            is_queued=is_queued,
            attempt=SimpleNamespace(number=1),
            part=msgspec.structs.replace(
                new_part(NodeId("1" * 32), "node1", range(0)), state="running", saves=True
            ),
        )
        self.placement = SimpleNamespace(node_rank=node_rank)
        self.ended: list[Problem] = []
        self.saves = 0

    def now_s(self) -> float:
        return 0.0

    def change(self, event: Any) -> None:
        self.record.part = apply(self.record.part, event)

    def abort(self, problem: Problem) -> None:
        self.ended.append(problem)

    def save_checkpoint(self, request: Any) -> None:
        assert not request.is_last, "it goes on in the next hours"
        self.saves += 1

    @property
    def warned(self) -> list[str]:
        return [one.cause for one in self.record.part.warnings]


class Night:
    """One node, at a time that the test sets."""

    def __init__(self, state: Path, *jobs: Job, **availability: Any) -> None:
        self.now_s = at(0, 20)
        availability_file(state).write(Availability(**availability))
        node: Any = SimpleNamespace(
            owner=NodeAvailability(state, lambda: self.now_s),
            check_owner=lambda: None,
            jobs=SimpleNamespace(active=lambda: jobs),
            audit=Audit(state / "audit.log"),
        )
        self._keeping = Keeping(node, lambda: self.now_s)

    def keep(self, day: int, hour: float) -> None:
        self.now_s = at(day, hour)
        self._keeping.keep()


def test_a_job_runs_past_the_hours_and_its_table_says_so(tmp_path: Path) -> None:
    job = Job()
    night = Night(tmp_path, job, hours=NIGHTS)
    night.keep(0, 20)
    night.keep(1, 6.99)
    assert job.warned == []
    night.keep(1, 7.5)
    night.keep(1, 8)
    assert [one.kind for one in job.record.part.warnings] == [Kind.OUT_OF_HOURS]
    assert "07:00" in job.warned[0]
    night.keep(1, 19.1)
    assert job.warned == []
    assert not job.ended
    assert not job.saves


def test_strictly_it_is_warned_saved_and_ended(tmp_path: Path) -> None:
    head, other, queued = Job(), Job(node_rank=1), Job(is_queued=True)
    night = Night(tmp_path, head, other, queued, hours=NIGHTS, is_strict=True)
    night.keep(1, 6)
    assert head.warned == []
    night.keep(1, 6.9)
    assert "07:00" in head.warned[0]
    assert head.saves == 0
    night.keep(1, 6.95)
    night.keep(1, 6.96)
    assert (head.saves, other.saves) == (1, 0), "once, and only by the head"
    assert not head.ended
    night.keep(1, 7.01)
    for job in (head, other):
        assert [one.kind for one in job.ended] == [Kind.OUT_OF_HOURS]
        assert job.ended[0].node == "node1"
    assert not queued.ended
    assert not queued.warned


def test_a_drain_ends_jobs_only_if_it_says_so(tmp_path: Path) -> None:
    job, queued = Job(), Job(is_queued=True)
    drain = Drain(since_s=1.0, reason="exam")
    Night(tmp_path, job, queued, drain=drain).keep(0, 20)
    assert not job.ended
    Night(tmp_path, job, queued, drain=Drain(since_s=1.0, reason="exam", ends_jobs=True)).keep(
        0, 20
    )
    (problem,) = job.ended
    assert problem.kind is Kind.DRAINED
    assert problem.cause.endswith(": exam")
    assert not queued.ended, "it waits until the node takes jobs again"
    assert '"what": "stop"' in (tmp_path / "audit.log").read_text()
