"""Job views of runs, as a driver has them."""

from __future__ import annotations

from jupyter_mntrain.model.ids import JobId, NodeId, Rank
from jupyter_mntrain.model.records.job import (
    Attempt,
    Earlier,
    JobSpec,
    JobState,
    JobView,
    Origin,
    Participant,
    PartStatus,
    Placement,
    RankStatus,
    Restart,
)


def job_view(
    job_id: str,
    *states: JobState,
    number: int = 1,
    step: int | None = None,
    submitted_s: float = 0.0,
    origin: Origin | None = None,
    earlier: Earlier | None = None,
    restart: Restart | None = None,
    saved_step: int | None = None,
    max_restarts: int = 0,
) -> JobView:
    """One rank on each of node1, node2, …, whose parts are in these states."""
    names = [f"node{place}" for place in range(1, len(states) + 1)]
    places = tuple(
        Placement(
            node_id=NodeId(name),
            node=name,
            node_rank=rank,
            first_rank=Rank(rank),
            nproc=1,
            gpus=(),
            interface="eno1",
            address="10.0.0.1",
            agent=("10.0.0.1:8765",),
        )
        for rank, name in enumerate(names)
    )
    parts = tuple(
        PartStatus(
            node_id=NodeId(name),
            node=name,
            state=state,
            ranks=(RankStatus(rank=Rank(rank), state=state, step=step),),
            saved_step=saved_step,
        )
        for rank, (name, state) in enumerate(zip(names, states, strict=True))
    )
    spec = JobSpec(
        entry=("x.py",),
        participants=tuple(map(Participant, names)),
        origin=origin,
        max_restarts=max_restarts,
    )
    attempt = Attempt(number, places, "10.0.0.1", 1, submitted_s, earlier)
    return JobView(JobId(job_id), spec, attempt, states[0], parts, restart=restart)
