"""Jobs that wait in the queue, made by hand."""

from __future__ import annotations

from jupyter_mntrain.model.ids import JobId, NodeId, Rank
from jupyter_mntrain.model.lifecycle.state import new_part
from jupyter_mntrain.model.records.job import (
    Attempt,
    JobRecord,
    JobSpec,
    Participant,
    Placement,
    Restart,
)

NOW_S = 1000.0


def node_id(number: int) -> NodeId:
    return NodeId(f"{number:032x}")


def queued(
    number: int,
    gpus: dict[int, tuple[int, ...]],
    *,
    on: int | None = None,
    priority: int = 0,
    submitted_s: float = 0.0,
) -> JobRecord:
    """A job that wants GPUs by node, as node ``on`` keeps it, or its head."""
    placements = tuple(
        Placement(
            node_id=node_id(one),
            node=f"node{one}",
            node_rank=rank,
            first_rank=Rank(rank),
            nproc=1,
            gpus=ids,
            interface="eth1",
            address=f"10.0.0.{one}",
            agent=(f"10.0.0.{one}:8765",),
        )
        for rank, (one, ids) in enumerate(gpus.items())
    )
    own = placements[0].node_id if on is None else node_id(on)
    return JobRecord(
        job_id=JobId(f"j-{number:08x}"),
        spec=JobSpec(entry=("a.py",), participants=(Participant("x"),), priority=priority),
        attempt=Attempt(
            number=0,
            placements=placements,
            master_address="",
            master_port=0,
            submitted_s=submitted_s,
        ),
        part=new_part(own, "x", range(1)),
        restart=Restart(number=1, at_s=0.0),
    )
