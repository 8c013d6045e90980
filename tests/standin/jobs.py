"""Jobs, records and histories for tests, in one line each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from jupyter_mntrain.metrics.history import HistoryBuilder, JobHistory
from jupyter_mntrain.metrics.series_builder import SeriesBuilder
from jupyter_mntrain.metrics.summary import JobSummary
from jupyter_mntrain.model.ids import JobId, NodeId, Rank
from jupyter_mntrain.model.lifecycle.rollup import roll_up
from jupyter_mntrain.model.lifecycle.state import new_part
from jupyter_mntrain.model.records.job import (
    Attempt,
    JobRecord,
    JobSpec,
    JobState,
    JobView,
    Participant,
    Placement,
)
from jupyter_mntrain.model.records.metrics import JournalLine, RankStep, Sample
from jupyter_mntrain.model.records.node import Capacity, LinkMeasurement, MachineDescription

JOB = JobId("j-00000001")


def place(node: str, node_rank: int, first_rank: int, nproc: int = 1, **fields: Any) -> Placement:
    basis: dict[str, Any] = {
        "node_id": NodeId(f"id-of-{node}"),
        "node": node,
        "node_rank": node_rank,
        "first_rank": Rank(first_rank),
        "nproc": nproc,
        "gpus": (),
        "interface": "eth1",
        "address": f"10.0.0.{node_rank + 1}",
        "agent": (f"10.0.0.{node_rank + 1}:8765",),
    }
    return Placement(**(basis | fields))


TWO = (place("node1", 0, 0), place("node2", 1, 1))
ONE_AND_TWO = (place("node1", 0, 0), place("node2", 1, 1, nproc=2))


def measured_links(
    sender: str, receivers: Iterable[str], capacity: Capacity
) -> tuple[LinkMeasurement, ...]:
    """What a node measured to the others of these."""
    return tuple(
        LinkMeasurement(
            sender=sender, receiver=one, interface="eth1", address="10.0.0.9", capacity=capacity
        )
        for one in receivers
        if one != sender
    )


def record(
    node_rank: int = 0,
    state: JobState = "running",
    *,
    places: Sequence[Placement] = TWO,
    job_id: JobId = JOB,
    number: int = 1,
    submitted_s: float = 100.0,
    spec: dict[str, Any] | None = None,
    **part: Any,
) -> JobRecord:
    own = places[node_rank]
    fresh = new_part(own.node_id, own.node, own.ranks)
    ranks = tuple(msgspec.structs.replace(status, state=state) for status in fresh.ranks)
    participants = tuple(Participant(node=p.node, nproc=p.nproc) for p in places)
    return JobRecord(
        job_id=job_id,
        spec=JobSpec(**{"entry": ("-m", "trainer"), "participants": participants, **(spec or {})}),
        attempt=Attempt(
            number=number,
            placements=tuple(places),
            master_address=places[0].address,
            master_port=29400,
            submitted_s=submitted_s,
        ),
        part=msgspec.structs.replace(fresh, state=state, ranks=ranks, **part),
    )


def view(*states: JobState, places: Sequence[Placement] = TWO, **fields: Any) -> JobView:
    return roll_up(
        record(number, state, places=places, **fields) for number, state in enumerate(states)
    )


def step(rank: int, number: int, **fields: Any) -> RankStep:
    basis = {"time_s": float(number), "rank": Rank(rank), "step": number, "step_s": 1.0}
    return RankStep(**(basis | fields))


def history(
    job: JobView, samples: dict[str, Sequence[Sample]], *, is_complete: bool = False
) -> JobHistory:
    """A history out of each node's samples in order."""
    builder = HistoryBuilder()
    for node, bodies in samples.items():
        for seq, body in enumerate(bodies, 1):
            builder.add(NodeId(f"id-of-{node}"), node, JournalLine(seq=seq, attempt=1, body=body))
    return builder.snapshot(job, is_complete=is_complete)


def taken(job: JobHistory, now_s: float = 1000.0) -> SeriesBuilder:
    """All of a history at once."""
    builder = SeriesBuilder(job.view.job_id, "s")
    builder.extend(job, now_s)
    return builder


def summarize(job: JobHistory, *, now_s: float) -> JobSummary:
    return taken(job, now_s).summary


MACHINE = MachineDescription(system="Linux", packages={"torch": "2.9.0"}, nvidia_smi="none")
